"""Implementation of `redbatch dead`. Each function returns the exit code: 0, or 1 after a failure."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from redbatch.dead import view
from redbatch.dead.letter_ids import format_letter_id, split_letter_id
from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.queue_target import QueueTarget, ask_shards, report_left_out, run_on_shards
from redbatch.terminal import make_console, print_line
from shared import dead_letters, producer
from shared.codec import CodecError, decode_reply
from shared.connection import RedisConnection
from shared.dead_letters import DeadLetter
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.messages import Failure
from shared.process.log_text import printable_line
from shared.shard_connections import ShardConnection

MAX_LETTERS = 1_000_000  # all: more than --max-dead-letters allows (100,000)
NO_ANSWER = "no answer in time: check with `redbatch queue` that a worker is alive"
NUM_NEWEST = 20
REQUEUE_FAILURES = {
    "gone": "there is no such dead letter",
    "no body": "its inputs were too long to be kept",
    "unreadable": "it was not written by a worker",
}


def list_letters(target: QueueTarget, limit: int, *, in_json: bool) -> int:
    """Prints at most `limit` dead letters, newest first; on stderr, the shards that do not answer."""

    async def task(shards: Sequence[ShardConnection], keys: Keys) -> int:
        answers, problems = await ask_shards(shards, partial(_read, limit))
        letters = _by_age(letters for letters, _ in answers.values())[: -limit - 1 : -1]
        if in_json:
            for letter in letters:
                print_line(json.dumps(view.as_dict(letter)))
        else:
            total = sum(number for _, number in answers.values())
            make_console().print(view.as_table(keys.queue, letters, total))
        report_left_out("letters", shards, problems)
        return 0

    return run_on_shards(target, "dead", task)


def show_letter(target: QueueTarget, public_id: str, *, with_text: bool, in_json: bool) -> int:
    """Prints one dead letter in full."""
    number, letter_id = split_letter_id(public_id)

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        letter = None
        if number < len(shards):
            try:
                letter = await dead_letters.find(shards[number].connection, shards[number].keys, letter_id)
            except RedisUnreachableError as error:
                return report_failure(f"{shards[number].place}: {error.log_message}")
        if letter is None:
            return report_failure(f"{public_id}: there is no such dead letter")
        letter = replace(letter, letter_id=public_id)
        if in_json:
            print_line(json.dumps(view.as_dict(letter, with_text=with_text)))
        else:
            make_console().print(view.as_text(letter, with_text=with_text))
        return 0

    return run_on_shards(target, "dead", task)


def requeue_letters(
    target: QueueTarget, public_ids: Sequence[str], timeout_s: float, *, all_letters: bool, in_json: bool
) -> int:
    """Runs dead letters again, one after the other, and prints the outcome of each.

    Deletes those that are answered, and those that became a new dead letter. A shard that does not answer is a failure.
    """

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        ids: Sequence[str] = public_ids
        problems: Mapping[int, str] = {}
        if all_letters:
            answers, problems = await ask_shards(shards, partial(_read, MAX_LETTERS))
            ids = [letter.letter_id for letter in _by_age(letters for letters, _ in answers.values())]
        outcomes: list[bool] = []
        for public_id in dict.fromkeys(ids):
            number, letter_id = split_letter_id(public_id)
            try:
                problem = (
                    await _requeue(shards[number].connection, shards[number].keys, letter_id, timeout_s)
                    if number < len(shards)
                    else REQUEUE_FAILURES["gone"]
                )
            except RedisUnreachableError as error:
                if len(shards) == 1:
                    raise
                problem = f"{shards[number].place}: {printable_line(error.log_message)}"
            as_json = {"id": public_id, "answered": not problem, "error": problem}
            print_line(json.dumps(as_json) if in_json else f"{public_id}: {problem or 'answered'}")
            outcomes.append(not problem)
        report_left_out("letters", shards, problems)
        return 0 if all(outcomes) and not problems else EXIT_FAILED

    return run_on_shards(target, "dead", task)


async def _requeue(connection: RedisConnection, keys: Keys, letter_id: str, timeout_s: float) -> str:
    """Runs a dead letter again; returns the problem, or an empty text after a good reply."""
    request_id = secrets.token_hex(16)
    outcome, ref = await dead_letters.requeue(connection, keys, letter_id, request_id, int(timeout_s * 1000))
    if ref is None:
        return REQUEUE_FAILURES[outcome]
    problem = await _outcome(connection, keys.reply(request_id), timeout_s)
    if problem == NO_ANSWER:
        await producer.cancel(connection, keys, [ref], ())
    newest = await dead_letters.read(connection, keys, NUM_NEWEST)
    # A letter that was given up again has become a new dead letter, so the old one is deleted, too.
    if not problem or any(letter.request_id == request_id for letter in newest):
        await dead_letters.purge(connection, keys, [letter_id])
    return problem


def purge_letters(
    target: QueueTarget, public_ids: Sequence[str], *, all_letters: bool, confirm: Callable[[int], bool]
) -> int:
    """Deletes dead letters if `confirm`, called with their number, returns true.

    A shard that does not answer is a failure.
    """
    ids_by_shard: dict[int, set[str]] = defaultdict(set)
    for number, letter_id in map(split_letter_id, public_ids):
        ids_by_shard[number].add(letter_id)

    async def count(shard: ShardConnection) -> int:
        if all_letters:
            return await dead_letters.count(shard.connection, shard.keys)
        return len(ids_by_shard[shard.number])

    async def purge(shard: ShardConnection) -> int:
        if all_letters:
            return await dead_letters.purge_all(shard.connection, shard.keys)
        return await dead_letters.purge(shard.connection, shard.keys, sorted(ids_by_shard[shard.number]))

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        counts, problems = await ask_shards(shards, count)
        num_letters = sum(counts.values()) if all_letters else sum(map(len, ids_by_shard.values()))
        if not num_letters or not confirm(num_letters):
            print_line("nothing deleted")
            return report_left_out("letters", shards, problems)
        answering = [each for each in shards if each.number in counts]
        deleted, more_problems = await ask_shards(answering, purge)
        num_deleted = sum(deleted.values())
        print_line(f"deleted: {num_deleted:,}")
        exit_code = report_left_out("letters", shards, problems | more_problems)
        num_unknown = num_letters - num_deleted - sum(counts[each] for each in more_problems)
        if num_unknown and not all_letters:
            return report_failure(f"{num_unknown:,} of these ids do not exist")
        return exit_code

    return run_on_shards(target, "dead", task)


async def _read(limit: int, shard: ShardConnection) -> tuple[list[DeadLetter], int]:
    """Returns the newest letters of a shard, with the ids for people, and the number of all."""
    letters = await dead_letters.read(shard.connection, shard.keys, limit)
    return [
        replace(each, letter_id=format_letter_id(shard.number, each.letter_id)) for each in letters
    ], await dead_letters.count(shard.connection, shard.keys)


def _by_age(letters_of_shards: Iterable[Sequence[DeadLetter]]) -> list[DeadLetter]:
    """Returns the letters of all shards, oldest first, of lists that begin with the newest."""
    return sorted(
        (letter for letters in letters_of_shards for letter in reversed(letters)), key=lambda letter: letter.died_ms
    )


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
