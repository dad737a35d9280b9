"""The API key that `redbatch up` creates in its private Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from redbatch.up.data_dir import DataDir
from shared.api_keys import add, find, new_key
from shared.connection import RedisConnection
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings


async def create_api_key(urls: Sequence[str], queue: str, data_dir: DataDir | None) -> str:
    """Adds an API key to each private Redis and returns it, or returns the key that an earlier `up` kept there.

    No one else can add a key to an empty Redis before the gateways start.
    """
    earlier_key = "" if data_dir is None else data_dir.read_api_key()
    async with AsyncExitStack() as stack:
        shards: list[RedisConnection] = []
        for url in urls:
            connections = QueueConnections(QueueSettings(redis_url=url, redis_shards=""), queue, "redbatch-up")
            stack.push_async_callback(connections.close)
            shards.append(connections.connection("keys"))
        kept = [(await find(each, earlier_key.partition(".")[0]))[0] if earlier_key else None for each in shards]
        earlier = next((each for each in kept if each is not None), None)
        api_key, key_with_secret = (
            new_key(("embed", "jobs"), name="redbatch up") if earlier is None else (earlier, earlier_key)
        )
        for shard, found in zip(shards, kept, strict=True):
            if found is None:
                await add(shard, api_key)
        if data_dir is not None and earlier is None:
            data_dir.write_api_key(key_with_secret)
    return key_with_secret
