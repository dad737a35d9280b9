"""Waiting and cancelling in asyncio, where the standard library has pitfalls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import structlog

log = structlog.get_logger()

CANCEL_INTERVAL_S = 0.1
RESTART_PAUSE_S = 0.5


async def wait_for_event(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits for an event; returns whether it came in time.

    This does not use `asyncio.wait_for`, which before Python 3.12 may swallow a cancellation that comes with the event.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks until all have ended: a wait_for in a library they call may swallow a cancellation."""
    everything = pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_INTERVAL_S)
    await asyncio.gather(*everything, return_exceptions=True)


@asynccontextmanager
async def yield_as_long() -> AsyncIterator[None]:
    """Sleeps after the block for as long as the block took, so that other tasks get the same time."""
    start = time.monotonic()
    try:
        yield
    finally:
        await asyncio.sleep(time.monotonic() - start)


async def run_forever(part: Callable[[], Awaitable[None]]) -> None:
    """Runs a background part for ever. An unexpected exception is logged, and the part starts again."""
    while True:
        try:
            await part()
        except Exception:
            log.exception("a part of the process failed")
            await asyncio.sleep(RESTART_PAUSE_S)
