"""Waits until Redis has made sure of what it was given."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Literal

from shared.process.tasks import end
from shared.errors import NotDurable
from shared.connection import CommandUnknown, NotPermitted

if TYPE_CHECKING:
    from shared.keys import Keys
    from shared.connection import Link

Level = Literal["none", "aof", "replicas"]
MARGIN_S = 1.0


class Durability:
    """Tells when all that Redis had been given has become durable: one question for all who ask at a time.

    Redis waits for what came over the connection that asks, and for nothing over one that is new. So each question goes
    out together with a write, which stands behind everything that was answered before.

    Args:
        link: for nothing else; it may wait long.
        keys: of the queue.
    """

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._numbers = itertools.count()
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def confirm(self, level: Level, timeout_s: float) -> None:
        """Returns when all that was written before has reached a level; that may take a question before its own, too.

        Raises:
            NotDurable: it has not, in time, or cannot.
            RedisUnreachable: nobody knows.
        """
        if level == "none":
            return
        if self._next is None:
            self._next = asyncio.create_task(self._ask(level, timeout_s))
            self._tasks.add(self._next)
            self._next.add_done_callback(self._asked)
        await asyncio.shield(self._next)

    async def stop(self) -> None:
        """Asks no more."""
        await end(self._tasks)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is taken notice of, also when nobody waits any more

    async def _ask(self, level: Level, timeout_s: float) -> None:
        async with self._asking:
            self._next = None  # whoever comes from now on may have written something since
            await (self._replicas(timeout_s) if level == "replicas" else self._file(timeout_s))

    async def _replicas(self, timeout_s: float) -> None:
        if await self._after_a_write("WAIT", 1, int(timeout_s * 1000), timeout_s=timeout_s) < 1:
            raise NotDurable("No replica of Redis has taken the job in time: try again.")

    async def _file(self, timeout_s: float) -> None:
        if b"aof_enabled:1" not in await self._link.call("INFO", "persistence"):
            raise NotDurable("Redis has no append-only file: no job can be promised to survive.")
        try:
            local, _ = await self._after_a_write("WAITAOF", 1, 0, int(timeout_s * 1000), timeout_s=timeout_s)
        except CommandUnknown:  # before 7.2; with `appendfsync always` each answer comes after the write to disk
            try:
                _, fsync = await self._link.call("CONFIG", "GET", "appendfsync")
            except NotPermitted:  # the user gateway may not: passwords are among what this tells
                fsync = b""
            if fsync != b"always":
                raise NotDurable(
                    "This Redis cannot say when it has written to disk: set appendfsync always, or use 7.2."
                ) from None
        else:
            if local < 1:
                raise NotDurable("Redis has not written the job to disk in time: try again.")

    async def _after_a_write(self, *command: str | int, timeout_s: float) -> Any:  # noqa: ANN401 - as the command has it
        """Sends a write and a command at once, over one connection; returns the command's reply."""
        write = ("HSET", self._keys.owed, "asked", next(self._numbers))
        return (await self._link.call_all([write, command], timeout_s=timeout_s + MARGIN_S))[1]
