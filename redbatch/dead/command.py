"""Implementation of `redbatch dead`. Each function returns the exit code: 0, or 1 after a failure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from redbatch.dead import view
from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.queue_target import QueueTarget, ask_shards, report_left_out, run_on_shards
from redbatch.terminal import make_console, print_line
from shared import dead_letters
from shared.dead_letter_ids import split_letter_id
from shared.dead_letter_reader import LettersOfShard, newest_first, oldest_first, read_letters
from shared.dead_letter_requeue import GONE, PROBLEMS, requeue_and_wait
from shared.dead_letter_view import letter_as_dict
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.log_text import printable_line
from shared.shard_connections import ShardConnection

MAX_LETTERS = 1_000_000  # all: more than --max-dead-letters allows (100,000)


def list_letters(target: QueueTarget, limit: int, *, in_json: bool) -> int:
    """Prints at most `limit` dead letters, newest first; on stderr, the shards that do not answer."""

    async def task(shards: Sequence[ShardConnection], keys: Keys) -> int:
        answers, problems = await ask_shards(shards, _reader(limit))
        letters = newest_first(answers.values(), limit)
        if in_json:
            for letter in letters:
                print_line(json.dumps(letter_as_dict(letter)))
        else:
            total = sum(each.total for each in answers.values())
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
            print_line(json.dumps(letter_as_dict(letter, with_text=with_text)))
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
            answers, problems = await ask_shards(shards, _reader(MAX_LETTERS))
            ids = [letter.letter_id for letter in oldest_first(answers.values())]
        outcomes: list[bool] = []
        for public_id in dict.fromkeys(ids):
            number, letter_id = split_letter_id(public_id)
            try:
                problem = PROBLEMS[GONE]
                if number < len(shards):
                    shard = shards[number]
                    problem = (await requeue_and_wait(shard.connection, shard.keys, letter_id, timeout_s)).problem
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


def _reader(limit: int) -> Callable[[ShardConnection], Awaitable[LettersOfShard]]:
    return lambda shard: read_letters(shard, shard.keys, limit)
