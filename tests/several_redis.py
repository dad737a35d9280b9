"""Redis servers that follow one another, and a user to whom they do not tell who they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

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


@asynccontextmanager
async def blind_user(*servers: Server, allowed: tuple[str, ...] = ()) -> AsyncIterator[None]:
    """Adds a user who may do everything except INFO, beyond the `allowed` ACL rules. For its URLs, see `as_blind`."""
    for server in servers:
        async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw:
            await raw.execute_command("ACL", "SETUSER", "blind", "on", ">p", "~*", "+@all", "-info", *allowed)
    yield
    for server in servers:
        async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw:
            await raw.execute_command("ACL", "LOG", "RESET")


def as_blind(url: str) -> str:
    """Returns a URL for that user."""
    return urlsplit(url)._replace(netloc=f"blind:p@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()
