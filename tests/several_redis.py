"""Redis servers that follow one another, for tests of what happens when a replica takes over."""

from __future__ import annotations

from typing import Any

import redis.asyncio

from tests.servers import Server
from tests.users import REPLICA, password_of, users_are_on
from tests.waiting import wait_until


async def follow(replica: Server, master: Server) -> None:
    """Makes a server the replica of another, and waits until it has all its data."""
    async with redis.asyncio.Redis.from_url(master.url, protocol=2) as raw:
        await raw.config_set("repl-diskless-sync-delay", "0")
    async with redis.asyncio.Redis.from_url(replica.url, protocol=2) as raw:
        if users_are_on():
            await raw.config_set("masteruser", REPLICA)
            await raw.config_set("masterauth", password_of(REPLICA))
        await raw.execute_command("REPLICAOF", "127.0.0.1", str(master.port))

        async def is_in_step() -> bool:
            info: Any = await raw.info("replication")
            return info["master_link_status"] == "up" and not info["master_sync_in_progress"]

        await wait_until(is_in_step, "the replica has all data", timeout_s=20)


async def promote(replica: Server) -> None:
    """Makes a replica a master, as Sentinel does."""
    async with redis.asyncio.Redis.from_url(replica.url, protocol=2) as raw:
        await raw.execute_command("REPLICAOF", "NO", "ONE")
