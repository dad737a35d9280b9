"""Waiting for a condition: the one place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], str],
    *,
    timeout_s: float = 10.0,
    poll_s: float = 0.005,
) -> None:
    """Returns as soon as the condition holds; fails the test, saying what it waited for, when it never does.

    `what` is asked at the end if it is a function, so that it can tell what was there instead.
    """
    until = time.monotonic() + timeout_s
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        if time.monotonic() > until:
            message = f"waited {timeout_s} s in vain until {what if isinstance(what, str) else what()}"
            raise AssertionError(message)
        await asyncio.sleep(poll_s)
