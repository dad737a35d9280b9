"""Implementation of `redbatch dead`. Each function returns the exit code: 0, or 1 after a failure."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence

from redbatch.dead import view
from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.queue_target import QueueTarget, run_on_queue
from redbatch.terminal import make_console, print_line
from shared import dead_letters, producer
from shared.codec import CodecError, decode_reply
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.messages import Failure

MAX_LETTERS = 1_000_000  # all: more than --max-dead-letters allows (100,000)
NO_ANSWER = "no answer in time: check with `redbatch queue` that a worker is alive"
NUM_NEWEST = 20
REQUEUE_FAILURES = {
    "gone": "there is no such dead letter",
    "no body": "its inputs were too long to be kept",
    "unreadable": "it was not written by a worker",
}


def list_letters(target: QueueTarget, limit: int, *, in_json: bool) -> int:
    """Prints at most `limit` dead letters, newest first."""

    async def task(connection: RedisConnection, keys: Keys) -> int:
        letters = await dead_letters.read(connection, keys, limit)
        if in_json:
            for letter in letters:
                print_line(json.dumps(view.as_dict(letter)))
        else:
            total = await dead_letters.count(connection, keys)
            make_console().print(view.as_table(keys.queue, letters, total))
        return 0

    return run_on_queue(target, "dead", task)


def show_letter(target: QueueTarget, letter_id: str, *, with_text: bool, in_json: bool) -> int:
    """Prints one dead letter in full."""

    async def task(connection: RedisConnection, keys: Keys) -> int:
        letter = await dead_letters.find(connection, keys, letter_id)
        if letter is None:
            return report_failure(f"{letter_id}: there is no such dead letter")
        if in_json:
            print_line(json.dumps(view.as_dict(letter, with_text=with_text)))
        else:
            make_console().print(view.as_text(letter, with_text=with_text))
        return 0

    return run_on_queue(target, "dead", task)


def requeue_letters(target: QueueTarget, letter_ids: Sequence[str], timeout_s: float, *, all_letters: bool) -> int:
    """Runs dead letters again, one after the other, and prints the outcome of each.

    Deletes those that are answered, and those that became a new dead letter.
    """

    async def requeue_one(connection: RedisConnection, keys: Keys, letter_id: str) -> bool:
        request_id = secrets.token_hex(16)
        outcome, ref = await dead_letters.requeue(connection, keys, letter_id, request_id, int(timeout_s * 1000))
        if ref is None:
            print_line(f"{letter_id}: {REQUEUE_FAILURES[outcome]}")
            return False
        problem = await _outcome(connection, keys.reply(request_id), timeout_s)
        if problem == NO_ANSWER:
            await producer.cancel(connection, keys, [ref], ())
        newest = await dead_letters.read(connection, keys, NUM_NEWEST)
        # A letter that was given up again has become a new dead letter, so the old one is deleted, too.
        if not problem or any(letter.request_id == request_id for letter in newest):
            await dead_letters.purge(connection, keys, [letter_id])
        print_line(f"{letter_id}: {problem or 'answered'}")
        return not problem

    async def task(connection: RedisConnection, keys: Keys) -> int:
        ids = letter_ids
        if all_letters:
            ids = [letter.letter_id for letter in reversed(await dead_letters.read(connection, keys, MAX_LETTERS))]
        outcomes = [await requeue_one(connection, keys, letter_id) for letter_id in dict.fromkeys(ids)]
        return 0 if all(outcomes) else EXIT_FAILED

    return run_on_queue(target, "dead", task)


def purge_letters(
    target: QueueTarget, letter_ids: Sequence[str], *, all_letters: bool, confirm: Callable[[int], bool]
) -> int:
    """Deletes dead letters if `confirm`, called with their number, returns true."""

    async def task(connection: RedisConnection, keys: Keys) -> int:
        number = await dead_letters.count(connection, keys) if all_letters else len(set(letter_ids))
        if not number or not confirm(number):
            print_line("nothing deleted")
            return 0
        deleted = await (
            dead_letters.purge_all(connection, keys)
            if all_letters
            else dead_letters.purge(connection, keys, letter_ids)
        )
        print_line(f"deleted: {deleted:,}")
        return (
            0 if deleted == number or all_letters else report_failure(f"{number - deleted:,} of these ids do not exist")
        )

    return run_on_queue(target, "dead", task)


async def _outcome(connection: RedisConnection, key: str, timeout_s: float) -> str:
    """Waits for the reply under a Redis key; returns the problem, or an empty text after a good reply."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
        data = await connection.pop(key, left_s)
        if data is not None:
            try:
                reply = decode_reply(data)
            except CodecError as error:
                return f"the reply is unreadable: {error}"
            return f"{reply.code}: {reply.message}" if isinstance(reply, Failure) else ""
    return NO_ANSWER
