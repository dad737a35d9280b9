"""Waiting and cancelling in asyncio."""

from __future__ import annotations

import asyncio

from shared.process.tasks import cancel_and_wait, wait_for_event


async def test_a_part_that_swallows_a_cancellation_ends_all_the_same() -> None:
    """A task that swallows cancellations, as Python 3.11 and redis-py do, is cancelled again; its error is ignored."""
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
    await cancel_and_wait(tasks)
    assert all(task.done() for task in tasks)


async def test_an_event_is_waited_for_within_its_time() -> None:
    """The result says whether the event came in time."""
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.01)
    event.set()
    assert await wait_for_event(event, 0.01)
