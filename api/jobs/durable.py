"""Waits until Redis has made sure of what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from shared.errors import NotDurable
from shared.queue import CommandUnknown

if TYPE_CHECKING:
    from shared.queue import Link

MARGIN_S = 1.0


async def confirm(link: Link, level: Literal["none", "aof", "replicas"], timeout_s: float) -> None:
    """Returns when all that was written over a connection has reached a level.

    Raises:
        NotDurable: it has not, in time, or cannot.
        RedisUnreachable: nobody knows.
    """
    if level == "none":
        return
    if level == "replicas":
        if await link.call("WAIT", 1, int(timeout_s * 1000), timeout_s=timeout_s + MARGIN_S) < 1:
            raise NotDurable("No replica of Redis has taken the job in time: try again.")
        return
    if b"aof_enabled:1" not in await link.call("INFO", "persistence"):
        raise NotDurable("Redis has no append-only file: no job can be promised to survive.")
    try:
        local, _ = await link.call("WAITAOF", 1, 0, int(timeout_s * 1000), timeout_s=timeout_s + MARGIN_S)
    except CommandUnknown:  # before 7.2; with `appendfsync always` each answer comes after the write to disk
        _, fsync = await link.call("CONFIG", "GET", "appendfsync")
        if fsync != b"always":
            raise NotDurable(
                "This Redis cannot say when it has written to disk: set appendfsync always, or use 7.2."
            ) from None
    else:
        if local < 1:
            raise NotDurable("Redis has not written the job to disk in time: try again.")
