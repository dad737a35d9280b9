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

    `what` is asked at the end if it is a function, so that it can tell what was there instead. How often it was looked
    tells whether the machine stood still.
    """
    until, looks = time.monotonic() + timeout_s, 0
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        looks += 1
        if time.monotonic() > until:
            aim = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s} s in vain until {aim} (looked {looks} times)")
        await asyncio.sleep(poll_s)
