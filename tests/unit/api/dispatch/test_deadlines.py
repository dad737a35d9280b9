"""Deadlines with one timer."""

from __future__ import annotations

import asyncio

import pytest

from api.dispatch.deadlines import STEPS_PER_S, Deadlines
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

LONG_S = 60.0
STEP_S = 1 / STEPS_PER_S


async def test_each_item_is_called_back_once_its_deadline_has_passed() -> None:
    """Also one that was added after an item with a later deadline; none early, and no item twice."""
    loop, passed = asyncio.get_running_loop(), dict[str, float]()
    deadlines = Deadlines[str](lambda item: passed.update({item: loop.time()}))
    now = loop.time()
    due = {"later": now + 0.3, "sooner": now + 0.1, "as soon": now + 0.1, "past": now - 1.0}
    for item, deadline in due.items():
        deadlines.add(item, deadline, loop)
    await wait_until(lambda: len(passed) == len(due), "all have passed")
    assert (next(iter(passed)), list(passed)[-1]) == ("past", "later")
    assert all(at >= due[item] - 0.002 for item, at in passed.items())


async def test_a_removed_item_is_not_called_back() -> None:
    """Nor does it keep the timer from the items after it; to remove it twice changes nothing."""
    loop, passed = asyncio.get_running_loop(), list[str]()
    deadlines = Deadlines[str](passed.append)
    deadline = loop.time() + 3 * STEP_S
    deadlines.add("removed", deadline, loop)
    deadlines.add("kept", deadline + 5 * STEP_S, loop)
    for _ in range(2):
        deadlines.remove("removed", deadline)
    await wait_until(lambda: bool(passed), "the other has passed")
    assert passed == ["kept"]


async def test_an_item_may_be_added_by_a_callback() -> None:
    """With a deadline that has passed, or after another item's, which does not wait for it."""
    loop, passed = asyncio.get_running_loop(), list[str]()

    def add_more(item: str) -> None:
        passed.append(item)
        if item == "first":
            deadlines.add("never", loop.time() + LONG_S, loop)
            deadlines.add("past", loop.time() - LONG_S, loop)

    deadlines = Deadlines[str](add_more)
    deadlines.add("second", loop.time() + 50 * STEP_S, loop)
    deadlines.add("first", loop.time(), loop)
    await wait_until(lambda: len(passed) == 3, "all but one have passed")
    assert passed == ["first", "past", "second"]
