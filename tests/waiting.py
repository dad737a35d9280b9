"""Waiting for a condition: the one place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

LOOK_S = 1.0


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], str],
    *,
    timeout_s: float = 10.0,
    poll_s: float = 0.005,
) -> None:
    """Returns as soon as the condition holds; fails the test, saying what it waited for, when it never does.

    `what` is asked at the end if it is a function, so that it can tell what was there instead. A machine that stands
    still does not make the time pass: from one look to the next it counts for a second at most.
    """
    waited_s, looks, looked = 0.0, 0, time.monotonic()
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        looks += 1
        waited_s += min(LOOK_S, time.monotonic() - looked)
        looked = time.monotonic()
        if waited_s > timeout_s:
            aim = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s} s in vain until {aim} (looked {looks} times)")
        await asyncio.sleep(poll_s)
