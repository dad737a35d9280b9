"""How the lanes take turns, and what a batch takes of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import ANYONES, Limits, Turn, Waiting, plan
from gpuworker.policy.fair_share import LEAST_SHARE, Demand, Turns

NOW, LATER = 1.0, 9.0
BULKS_TURN = Turn(bulk_owed=10**9)
NEVER_S = 1e9

sizes = st.integers(1, 512)
waitings = st.lists(
    st.builds(
        Waiting,
        tokens=st.integers(1, 12),
        since=st.integers(0, 20).map(lambda ticks: ticks * 0.05),
        deadline=st.sampled_from([LATER, LATER, LATER, 0.5]),
        attempts=st.just(0),  # hypothesis fills all fields of a named tuple, also those with a default
        entry=st.just(""),
        bulk=st.booleans(),
    ),
    max_size=30,
)
bounds = st.builds(
    lambda **given: Limits(**given),  # noqa: PLW0108 - of a named tuple builds() would fill what has a default too
    max_size=st.integers(1, 10),
    max_tokens=st.integers(1, 60),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    overhead_tokens=st.sampled_from([0.0, 1.0, 32.0]),
    packed=st.booleans(),
    bulk_tokens=st.none() | st.integers(1, 60),
)


def batch_of(waiting: Sequence[Waiting], limits: Limits, turn: Turn = ANYONES) -> list[Waiting]:
    """Returns the inputs of the next batch."""
    return [waiting[i] for i in plan(waiting, limits, NOW, turn).batch]


def cost(batch: Sequence[Waiting], limits: Limits) -> int:
    """Returns what a batch costs, in tokens."""
    lengths = [each.tokens for each in batch]
    return sum(lengths) if limits.packed else max(lengths) * len(lengths)


@given(waitings, bounds)
def test_bulk_takes_nothing_from_others(waiting: list[Waiting], limits: Limits) -> None:
    """As long as it is not its turn, of the interactive inputs the same go as if no bulk waited."""
    interactive = [each for each in waiting if not each.bulk]
    went = [each for each in batch_of(waiting, limits) if not each.bulk]
    assert went == batch_of(interactive, limits)


@given(waitings, bounds)
def test_bulk_fills_the_room_that_is_left(waiting: list[Waiting], limits: Limits) -> None:
    """All limits are kept, no batch gets longer by it, and what was left behind had no room."""
    batch = batch_of(waiting, limits)
    first = [each for each in batch if not each.bulk]
    if not first or len(first) == len(batch):
        return
    assert len(batch) <= limits.max_size
    assert cost(batch, limits) <= limits.max_tokens
    assert limits.packed or max(each.tokens for each in batch) == max(each.tokens for each in first)


@given(waitings, bounds)
def test_no_room_is_left_that_a_bulk_input_would_fit_into(waiting: list[Waiting], limits: Limits) -> None:
    """Where batches are padded, one fits that is no longer than the batch's longest."""
    made = plan(waiting, limits, NOW)
    batch = [waiting[i] for i in made.batch]
    if not batch or batch[0].bulk or len(batch) == limits.max_size:
        return
    left = (
        each
        for i, each in enumerate(waiting)
        if i not in made.batch
        and each.bulk
        and each.deadline > NOW
        and (limits.packed or each.tokens <= max(other.tokens for other in batch))
    )
    assert all(cost([*batch, each], limits) > limits.of(bulk=True).max_tokens for each in left)


@given(waitings, bounds, st.booleans())
def test_bulk_makes_no_batch_larger_than_its_own_bound(waiting: list[Waiting], limits: Limits, leads: bool) -> None:
    """Interactive inputs beside it may; and a single input of bulk may be longer than that."""
    batch = batch_of(waiting, limits, BULKS_TURN if leads else ANYONES)
    bulk = [each for each in batch if each.bulk]
    if len(bulk) <= 1:
        return
    most = limits.of(bulk=True).max_tokens
    assert cost(bulk if leads else batch, limits) <= most


@given(waitings, bounds)
def test_when_it_is_bulks_turn_the_lanes_change_places(waiting: list[Waiting], limits: Limits) -> None:
    """Then the others fill the room that it leaves."""
    limits = limits._replace(bulk_tokens=None)  # else they would not be alike
    turned = [each._replace(bulk=not each.bulk) for each in waiting]
    assert plan(waiting, limits, NOW, BULKS_TURN) == plan(turned, limits, NOW)


@given(waitings, bounds, st.integers(1, 20))
def test_without_padding_no_more_of_bulk_goes_first_than_it_is_owed(
    waiting: list[Waiting], limits: Limits, owed: int
) -> None:
    """More of it goes only where none of the interactive inputs that are left would fit beside what it is owed."""
    limits = limits._replace(packed=True, age_bound_s=NEVER_S)
    batch = batch_of(waiting, limits, Turn(bulk_owed=owed))
    interactive = [each for each in batch if not each.bulk]
    bulk = [each for each in batch if each.bulk]
    sums = list(accumulate(each.tokens for each in bulk))
    lead = next((number for number, tokens in enumerate(sums, 1) if tokens >= owed), len(bulk))
    left = [each for each in waiting if each.deadline > NOW and not each.bulk and each not in interactive]
    if len(bulk) > lead:
        room = limits.max_tokens - sum(each.tokens for each in [*bulk[:lead], *interactive])
        assert lead + len(interactive) >= limits.max_size or all(each.tokens > room for each in left)


@given(st.floats(0.01, 0.9), st.lists(sizes, min_size=50, max_size=300))
def test_bulk_has_its_share(share: float, batches: list[int]) -> None:
    """Both lanes wait all the time, batches hold whatever number of tokens: it falls short by less than a batch."""
    turns = Turns(share, NEVER_S)
    went = {False: 0, True: 0}
    for now, tokens in enumerate(batches):
        bulk = turns.owed(now) > 0
        went[bulk] += tokens
        turns.took(0 if bulk else tokens, tokens if bulk else 0, led=bulk, waits=True, now=now)
    together = sum(went.values())
    assert share * together - max(batches) <= went[True] <= share * together + max(batches)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=50))
def test_room_that_was_left_is_not_saved_up(batches: list[tuple[int, int]]) -> None:
    """However much bulk had for nothing, it soon has its share again: what it had last is what it waits for."""
    turns = Turns(0.5, NEVER_S)
    for interactive, bulk in batches:
        turns.took(interactive, interactive + bulk, led=False, waits=True, now=0.0)
    most = max(interactive + bulk for interactive, bulk in batches)
    turns.took(most + 1, 0, led=False, waits=True, now=0.0)
    assert turns.owed(0.0) > 0


def test_bulk_that_does_not_wait_is_owed_nothing() -> None:
    """What went by while there was none does not count."""
    turns = Turns(0.5, NEVER_S)
    turns.took(10_000, 0, led=False, waits=False, now=0.0)
    assert turns.owed(0.0) == 0
    turns.took(10, 0, led=False, waits=True, now=0.0)
    assert turns.owed(0.0) == 10


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_bulk_is_passed_over_no_longer_than_its_bound(share: float) -> None:
    """Whatever its share; and it has one turn, not all from then on."""
    turns = Turns(share, 5.0)
    turns.took(10, 10, led=False, waits=True, now=0.0)
    turns.took(10, 1, led=False, waits=True, now=1.0)  # in the room that was left: another than the one that waits
    assert [turns.owed(now) for now in (1.0, 4.9, 5.0)] == [0, 0, 1]
    turns.took(0, 10, led=True, waits=True, now=5.0)
    assert [turns.owed(now) for now in (5.0, 9.9, 10.0)] == [0, 0, 1]


def demand_of(tokens_per_s: int, seconds: int) -> Demand:
    """Returns what was told of so many interactive tokens, each second for so long."""
    demand = Demand()
    for second in range(seconds):
        demand.passed(float(second))
        demand.ran(tokens_per_s)
    demand.passed(float(seconds))
    return demand


@pytest.mark.parametrize(
    ("tokens_per_s", "share", "left"),
    [(0, 0.1, 1_000), (300, 0.1, 700), (950, 0.1, 100), (1_000, 0.5, 500), (1_000, 0.0, 1_000 * LEAST_SHARE)],
)
def test_bulk_has_what_is_left_or_its_share(tokens_per_s: int, share: float, left: float) -> None:
    """Of a thousand tokens a second."""
    assert demand_of(tokens_per_s, 30).left(1_000.0, share) == pytest.approx(left, rel=0.01)


def test_what_was_long_ago_takes_nothing() -> None:
    """Half a minute without an interactive request leaves all for bulk; a worker without a rate leaves nobody knows."""
    demand = demand_of(900, 30)
    demand.passed(60.0)
    assert demand.left(1_000.0, 0.1) == pytest.approx(1_000.0, rel=0.01)
    assert demand.left(0.0, 0.1) == 0.0
