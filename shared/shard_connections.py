"""Connections to the shards of a queue, and a question to all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.queue_connections import QueueConnections
from shared.redis_url import mask_password

AnswerT = TypeVar("AnswerT")


class ShardConnection(NamedTuple):
    """A connection to one shard, or to the only Redis; `place` is its URL without the password."""

    number: int
    place: str
    connection: RedisConnection
    keys: Keys


def connect_shards(connections: Sequence[QueueConnections], purpose: str) -> list[ShardConnection]:
    """Returns a connection for `purpose` to each shard, by its number; they open when they are used."""
    return [
        ShardConnection(number, mask_password(each.settings.redis_url), each.shared_connection(purpose), each.keys)
        for number, each in enumerate(connections)
    ]


class ShardReplies(NamedTuple, Generic[AnswerT]):
    """The answers of shards, and the errors of those that gave none, by the number of the shard."""

    answers: dict[int, AnswerT]
    errors: dict[int, RedisUnreachableError]


async def try_shards(
    shards: Sequence[ShardConnection], ask: Callable[[ShardConnection], Awaitable[AnswerT]]
) -> ShardReplies[AnswerT]:
    """Asks all shards at once. Raises what `ask` does, except for RedisUnreachableError."""
    results = await asyncio.gather(*(ask(each) for each in shards), return_exceptions=True)
    replies = ShardReplies[AnswerT]({}, {})
    for shard, result in zip(shards, results, strict=True):
        if isinstance(result, RedisUnreachableError):
            replies.errors[shard.number] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            replies.answers[shard.number] = result
    return replies
