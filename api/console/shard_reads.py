"""Reads of all shards for the console: each in bounded time, and of the Redis that all other connections have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from shared.errors import RedisUnreachableError
from shared.shard_connections import ShardConnection

AnswerT = TypeVar("AnswerT")

READ_TIMEOUT_S = 1.0
"""A shard that takes longer counts as one that does not answer: viewers wait for the others."""


async def read_in_time(ask: Callable[[ShardConnection], Awaitable[AnswerT]], shard: ShardConnection) -> AnswerT:
    """Asks a shard. Raises RedisUnreachableError: it does not answer within READ_TIMEOUT_S."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            await shard.connection.check_home()
            return await ask(shard)
    except TimeoutError:
        raise RedisUnreachableError("Redis did not answer in time: try again.") from None


def describe_problems(shards: Sequence[ShardConnection], problems: Mapping[int, str]) -> list[dict[str, object]]:
    """Returns the shards that did not answer, and why, for JSON; `problems` are by the number of the shard."""
    return [
        {"shard": each.number, "redis": each.place, "error": problems[each.number]}
        for each in shards
        if each.number in problems
    ]
