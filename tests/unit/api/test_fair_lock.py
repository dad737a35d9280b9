"""A lock that tenants get in turns."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.fair_lock import FairLock
from api.tenants import ShareHolder

NAMES = st.sampled_from("abcd")


async def turns_of(waiting: list[str], cancelled: set[int]) -> list[str]:
    """Returns whose turns come, in order, of tasks that all wait; some of them are cancelled while they do."""
    lock, turns = FairLock(), list[str]()

    async def take(name: str) -> None:
        async with lock.turn(ShareHolder(name)):
            turns.append(name)
            await asyncio.sleep(0)

    async with lock.turn(ShareHolder("first")):
        tasks = [asyncio.create_task(take(name)) for name in waiting]
        await asyncio.sleep(0)
        for number, task in enumerate(tasks):
            if number in cancelled:
                task.cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    async with lock.turn(ShareHolder("last")):  # it is free
        return turns


@given(waiting=st.lists(NAMES, max_size=20), cancelled=st.sets(st.integers(0, 19)))
def test_holders_take_turns(waiting: list[str], cancelled: set[int]) -> None:
    """Each task that is not cancelled gets one turn; a holder gets no two while another one waits in between."""
    turns = asyncio.run(turns_of(waiting, cancelled))
    left = [name for number, name in enumerate(waiting) if number not in cancelled]
    assert sorted(turns) == sorted(left)
    for number, name in enumerate(turns):
        rest = turns[number:]
        for other in set(rest) - {name}:
            assert name not in turns[number + 1 : number + rest.index(other)], "another one waits for its turn"


async def test_the_weight_of_a_holder_gives_it_no_second_turn() -> None:
    """Keys of one tenant may have several weights; it waits once, however many there are."""
    lock, turns = FairLock(), list[str]()

    async def take(holder: ShareHolder) -> None:
        async with lock.turn(holder):
            turns.append(holder.name)

    waiting = [ShareHolder("a", weight) for weight in (1.0, 2.0, 3.0)] + [ShareHolder("b")]
    async with lock.turn(ShareHolder("first")):
        tasks = [asyncio.create_task(take(each)) for each in waiting]
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert turns == ["a", "b", "a", "a"]


@pytest.mark.parametrize("steps", range(4))
async def test_a_task_that_is_cancelled_at_its_turn_passes_it_on(steps: int) -> None:
    """However far the lock has come to it."""
    lock, turns = FairLock(), list[str]()

    async def take(name: str) -> None:
        async with lock.turn(ShareHolder(name)):
            turns.append(name)
            await asyncio.sleep(0)

    async with lock.turn(ShareHolder("first")):
        tasks = [asyncio.create_task(take(name)) for name in "ab"]
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks, timeout=60)
    assert turns[-1] == "b"
    assert tasks[1].done()


async def test_one_at_a_time_has_the_lock() -> None:
    """Also if others come at every moment."""
    lock, inside, most = FairLock(), 0, 0

    async def take(name: str) -> None:
        nonlocal inside, most
        for _ in range(20):
            async with lock.turn(ShareHolder(name)):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(take(name) for name in "abcabc"))
    assert most == 1
