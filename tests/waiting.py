"""Waiting for a condition, by polling."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], str],
    *,
    timeout_s: float = 30.0,
    poll_s: float = 0.005,
) -> None:
    """Returns as soon as the condition holds. Raises AssertionError if it does not hold within `timeout_s`.

    The default is long because a loaded machine may stall for many seconds. How fast something is, benchmarks show.

    `what` describes the condition in the error; a function is called at the end, so that it can describe the actual
    state. The error contains the number of polls, which shows whether the machine had stalled.
    """
    until, polls = time.monotonic() + timeout_s, 0
    while True:
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        polls += 1
        if time.monotonic() > until:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s} s: {description} (polled {polls} times)")
        await asyncio.sleep(poll_s)
