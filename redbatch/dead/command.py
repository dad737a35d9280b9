"""What `redbatch dead` does. Each function returns the exit code: 0, or 1 when something could not be done."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence

import typer
from rich.console import Console

from redbatch.dead import view
from redbatch.queue_target import EXIT_FAILED, Where, failed, on_queue
from shared import dead_letters
from shared import producer
from shared.codec import CodecError, decode_reply
from shared.keys import Keys
from shared.messages import Failure
from shared.connection import Link

ALL = 1_000_000
NOBODY_RUNS_IT = "no answer in time: does a worker live? See `redbatch queue`"
NEWEST = 20
WHY_NOT_REQUEUED = {
    "gone": "there is no such dead letter",
    "no body": "its texts were too long to be kept",
    "unreadable": "it is none that a worker wrote",
}


def show_all(where: Where, most: int, *, in_json: bool) -> int:
    """Prints the last dead letters, newest first."""

    async def work(link: Link, keys: Keys) -> int:
        letters = await dead_letters.read(link, keys, most)
        if in_json:
            for letter in letters:
                typer.echo(json.dumps(view.as_dict(letter)))
        else:
            total = await dead_letters.count(link, keys)
            Console(highlight=False).print(view.as_table(keys.queue, letters, total))
        return 0

    return on_queue(where, "dead", work)


def show_one(where: Where, letter_id: str, *, with_text: bool, in_json: bool) -> int:
    """Prints a dead letter whole."""

    async def work(link: Link, keys: Keys) -> int:
        letter = await dead_letters.find(link, keys, letter_id)
        if letter is None:
            return failed(f"{letter_id}: there is no such dead letter")
        if in_json:
            typer.echo(json.dumps(view.as_dict(letter, with_text=with_text)))
        else:
            Console(highlight=False).print(view.as_text(letter, with_text=with_text))
        return 0

    return on_queue(where, "dead", work)


def requeue(where: Where, letter_ids: Sequence[str], timeout_s: float, *, every: bool) -> int:
    """Runs dead letters again, one after the other, and prints what became of each. What is answered is deleted."""

    async def one(link: Link, keys: Keys, letter_id: str) -> bool:
        request_id = secrets.token_hex(16)
        outcome, ref = await dead_letters.requeue(link, keys, letter_id, request_id, int(timeout_s * 1000))
        if ref is None:
            typer.echo(f"{letter_id}: {WHY_NOT_REQUEUED[outcome]}")
            return False
        problem = await _outcome(link, keys.reply(request_id), timeout_s)
        if problem == NOBODY_RUNS_IT:
            await producer.cancel(link, keys, [ref], ())
        newest = await dead_letters.read(link, keys, NEWEST)
        if not problem or any(letter.request_id == request_id for letter in newest):  # it died again, and is a new one
            await dead_letters.purge(link, keys, [letter_id])
        typer.echo(f"{letter_id}: {problem or 'answered'}")
        return not problem

    async def work(link: Link, keys: Keys) -> int:
        ids = letter_ids
        if every:
            ids = [each.letter_id for each in reversed(await dead_letters.read(link, keys, ALL))]
        done = [await one(link, keys, each) for each in dict.fromkeys(ids)]
        return 0 if all(done) else EXIT_FAILED

    return on_queue(where, "dead", work)


def purge(where: Where, letter_ids: Sequence[str], *, every: bool, sure: Callable[[int], bool]) -> int:
    """Deletes dead letters if `sure`, which is asked with their number."""

    async def work(link: Link, keys: Keys) -> int:
        number = await dead_letters.count(link, keys) if every else len(set(letter_ids))
        if not number or not sure(number):
            typer.echo("nothing deleted")
            return 0
        gone = await (dead_letters.purge_all(link, keys) if every else dead_letters.purge(link, keys, letter_ids))
        typer.echo(f"deleted: {gone:,}")
        return 0 if gone == number or every else failed(f"{number - gone:,} of these ids are no dead letters")

    return on_queue(where, "dead", work)


async def _outcome(link: Link, key: str, timeout_s: float) -> str:
    """Waits for the reply under a key; returns what is wrong with it, or nothing."""
    ends = asyncio.get_running_loop().time() + timeout_s
    while (left := ends - asyncio.get_running_loop().time()) > 0:
        data = await link.pop(key, left)
        if data is not None:
            try:
                reply = decode_reply(data)
            except CodecError as error:
                return f"answered with what is no reply: {error}"
            return f"{reply.code}: {reply.message}" if isinstance(reply, Failure) else ""
    return NOBODY_RUNS_IT
