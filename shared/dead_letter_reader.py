"""Reads dead letters from all shards: for `redbatch dead` and for the console of a gateway."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from shared import dead_letters
from shared.dead_letter_ids import format_letter_id
from shared.dead_letters import DeadLetter
from shared.keys import Keys
from shared.shard_connections import ShardConnection


class LettersOfShard(NamedTuple):
    """The newest dead letters of a shard, newest first, with the ids for people; and the number of all."""

    newest: list[DeadLetter]
    total: int


async def read_letters(shard: ShardConnection, keys: Keys, limit: int) -> LettersOfShard:
    """Returns the newest `limit` letters of a queue on a shard. Raises RedisUnreachableError."""
    letters = await dead_letters.read(shard.connection, keys, limit)
    newest = [replace(each, letter_id=format_letter_id(shard.number, each.letter_id)) for each in letters]
    return LettersOfShard(newest, await dead_letters.count(shard.connection, keys))


def oldest_first(shards: Iterable[LettersOfShard]) -> list[DeadLetter]:
    """Returns the letters of all shards, oldest first."""
    return sorted((letter for each in shards for letter in reversed(each.newest)), key=lambda letter: letter.died_ms)


def newest_first(shards: Iterable[LettersOfShard], limit: int) -> Sequence[DeadLetter]:
    """Returns the newest `limit` letters of all shards."""
    return oldest_first(shards)[: -limit - 1 : -1]
