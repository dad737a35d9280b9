"""Waits until Redis has made its writes durable."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Literal

from shared.errors import NotDurableError
from shared.process.tasks import cancel_and_wait
from shared.redis_errors import CommandUnknownError, NotPermittedError, UnexpectedReplyError

if TYPE_CHECKING:
    from shared.connection import RedisConnection
    from shared.keys import Keys

Level = Literal["none", "aof", "replicas"]


class Durability:
    """Waits until all earlier writes to Redis are durable; concurrent callers share one check.

    WAIT and WAITAOF cover the writes of the connection that sends them, and nothing if it is new. So each check sends
    a write with the command: that write comes after all writes that were answered before.

    Args:
        connection: used only for these checks; it may block for long.
        keys: Redis keys of the queue.
    """

    def __init__(self, connection: RedisConnection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._numbers = itertools.count()
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def confirm(self, level: Level, timeout_s: float, num_replicas: int = 0) -> None:
        """Returns when all earlier writes have reached a level; a check that is under way must end first.

        Args:
            level: the setting `job_durability`.
            timeout_s: maximum time for it.
            num_replicas: of the level `replicas`; 0: all connected ones but one, and at least one.

        Raises:
            NotDurableError: the writes did not reach the level in time, or this Redis cannot confirm it.
            RedisUnreachableError: it is unknown whether the writes reached the level.
        """
        if level == "none":
            return
        if self._next is None:
            self._next = asyncio.create_task(self._check(level, timeout_s, num_replicas))
            self._tasks.add(self._next)
            self._next.add_done_callback(self._on_done)
        await asyncio.shield(self._next)

    async def stop(self) -> None:
        """Ends all checks."""
        await cancel_and_wait(self._tasks)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved even if no caller waits any more, so that asyncio does not warn

    async def _check(self, level: Level, timeout_s: float, num_replicas: int) -> None:
        async with self._lock:
            self._next = None  # callers from now on may have written since: they need the next check
            if level == "replicas":
                await self._wait_for_replicas(num_replicas or max(1, await self._num_connected() - 1), timeout_s)
            else:
                await self._wait_for_file(timeout_s)

    async def _num_connected(self) -> int:
        """Returns how many replicas are connected and synchronized; 0 if Redis does not tell."""
        return (await self._read_info("replication")).count(b"state=online")

    async def _read_info(self, section: str) -> bytes:
        """Returns a section of INFO; empty if Redis refuses it."""
        try:
            info: bytes = await self._connection.call("INFO", section)
        except UnexpectedReplyError:
            return b""
        return info

    async def _wait_for_replicas(self, required: int, timeout_s: float) -> None:
        try:
            num = await self._call_after_write("WAIT", required, int(timeout_s * 1000), block_s=timeout_s)
        except (CommandUnknownError, NotPermittedError):
            raise NotDurableError(
                "This Redis refuses WAIT, so it cannot confirm that its replicas have a job: lower job_durability."
            ) from None
        if num < required:
            raise NotDurableError(
                f"{num} of Redis' replicas have acknowledged the job in time, of {required} that must: try again."
            )

    async def _wait_for_file(self, timeout_s: float) -> None:
        if b"aof_enabled:0" in await self._read_info("persistence"):
            raise NotDurableError(
                "Redis has no append-only file, so it cannot make jobs durable: enable it, or lower job_durability."
            )
        try:
            local, _ = await self._call_after_write("WAITAOF", 1, 0, int(timeout_s * 1000), block_s=timeout_s)
        except UnexpectedReplyError:  # before 7.2; with `appendfsync always`, Redis answers after the write to disk
            try:
                _, fsync = await self._connection.call("CONFIG", "GET", "appendfsync")
            except UnexpectedReplyError:  # the Redis user of gateways lacks the right: CONFIG also returns passwords
                fsync = b""
            if fsync != b"always":
                raise NotDurableError(
                    "This Redis cannot confirm writes to disk: set appendfsync always, or use Redis 7.2 or newer."
                ) from None
        else:
            if local < 1:
                raise NotDurableError("Redis has not written the job to disk in time: try again.")

    async def _call_after_write(self, *command: str | int, block_s: float) -> Any:  # noqa: ANN401 - depends on the command
        """Sends a write and a command together over one connection; returns the command's reply."""
        write = ("HSET", self._keys.owed, "asked", next(self._numbers))
        return (await self._connection.call_all([write, command], block_s=block_s))[1]
