"""The turns in which a worker claims from its shards."""

from __future__ import annotations

import asyncio

import pytest

from gpuworker.consumer import claim_turns
from gpuworker.consumer.claim_turns import ClaimTurns
from gpuworker.settings import WorkerSettings
from shared.process.tasks import cancel_and_wait
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a turn last for as long as its holder wants."""
    monkeypatch.setattr(claim_turns, "MAX_TURN_S", 60)


def turns_of(*remaining: int) -> ClaimTurns:
    """Returns the turns of shards of which it is known how many entries are left."""
    turns = ClaimTurns(len(remaining), WorkerSettings(model="null").bulk)
    for shard, left in enumerate(remaining):
        turns.order.record_claim(shard, (left, 0), 0)
    return turns


async def take(turns: ClaimTurns, shard: int, taken: list[int], until: asyncio.Event) -> None:
    """Holds a turn until an event."""
    await turns.acquire(shard)
    taken.append(shard)
    await until.wait()
    turns.release(shard)


@pytest.mark.usefixtures("long_turns")
async def test_shards_that_wake_together_go_in_order_one_at_a_time() -> None:
    """All wait for the same event: that there is credit again."""
    turns, taken, end = turns_of(1, 3, 2), list[int](), asyncio.Event()
    tasks = [asyncio.create_task(take(turns, shard, taken, end)) for shard in range(3)]
    await wait_until(lambda: bool(taken), "the first has its turn")
    assert taken == [1]
    end.set()
    await asyncio.gather(*tasks)
    assert taken == [1, 2, 0]


async def test_a_turn_that_takes_too_long_delays_no_other() -> None:
    """Its Redis may hang. When its claim ends at last, that ends no turn of another shard."""
    turns, taken, never, end = turns_of(9, 5, 1), list[int](), asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(take(turns, 0, taken, never)), asyncio.create_task(take(turns, 1, taken, end))]
    await wait_until(lambda: taken == [0, 1], "the second shard has its turn")
    never.set()
    await tasks[0]
    assert turns._holder in {1, None}
    end.set()
    await tasks[1]


@pytest.mark.usefixtures("long_turns")
async def test_a_claimer_that_is_cancelled_leaves_its_turn() -> None:
    """Whether it waits for its turn, or was just about to have it."""
    turns, taken, end = turns_of(3, 2), list[int](), asyncio.Event()
    holding = asyncio.create_task(take(turns, 0, taken, end))
    await wait_until(lambda: bool(taken), "the first has its turn")
    waiting = asyncio.create_task(take(turns, 1, taken, end))
    await asyncio.sleep(0)
    await cancel_and_wait([waiting])
    turns.release(0)
    granted = asyncio.create_task(take(turns, 1, taken, end))
    await asyncio.sleep(0)  # it waits
    turns._grant()
    await cancel_and_wait([granted])
    await turns.acquire(0)
    turns.release(0)
    end.set()
    await holding


async def test_a_single_shard_waits_for_nothing() -> None:
    """It claims as if there were no turns."""
    turns = turns_of(5)
    await turns.acquire(0)
    await turns.acquire(0)
