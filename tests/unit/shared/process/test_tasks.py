"""Waiting and ending in asyncio."""

from __future__ import annotations

import asyncio

from shared.process.tasks import end, wait_for_event


async def test_a_part_that_swallows_a_cancellation_ends_all_the_same() -> None:
    """Python 3.11 and redis-py lose one now and then: the part is cancelled again, and its error hurts nobody."""
    swallowed: list[int] = []

    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
        raise ValueError("and then it fails")

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(asyncio.Event().wait())]
    await asyncio.wait(tasks, timeout=0.01)
    await end(tasks)
    assert all(task.done() for task in tasks)


async def test_an_event_is_waited_for_within_its_time() -> None:
    """The answer says whether it came."""
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.01)
    event.set()
    assert await wait_for_event(event, 0.01)
