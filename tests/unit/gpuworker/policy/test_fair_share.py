"""How the lanes take turns, and what a batch takes from each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import INITIAL_STATE, SchedulerState, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.fair_share import DeficitCounter
from gpuworker.policy.limits import Limits

NOW, LATER = 1.0, 9.0
BULKS_TURN = SchedulerState(bulk_owed=10**9)
NEVER_S = 1e9

sizes = st.integers(1, 512)
waiting_inputs = st.lists(
    st.builds(
        WaitingInput,
        tokens=st.integers(1, 12),
        since=st.integers(0, 20).map(lambda ticks: ticks * 0.05),
        deadline=st.sampled_from([LATER, LATER, LATER, 0.5]),
        attempts=st.just(0),  # hypothesis fills all fields of a named tuple, even those with a default
        entry=st.just(""),
        bulk=st.booleans(),
    ),
    max_size=30,
)
limits_strategy = st.builds(
    lambda **given: Limits(**given),  # noqa: PLW0108 - for a named tuple, builds() would also fill fields with a default
    max_size=st.integers(1, 10),
    max_tokens=st.integers(1, 60),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    overhead_tokens=st.sampled_from([0.0, 1.0, 32.0]),
    packed=st.booleans(),
    max_bulk_tokens=st.none() | st.integers(1, 60),
)


def batch_of(
    waiting: Sequence[WaitingInput], limits: Limits, state: SchedulerState = INITIAL_STATE
) -> list[WaitingInput]:
    """Returns the inputs of the next batch."""
    return [waiting[i] for i in plan(waiting, limits, NOW, state).batch]


def cost(batch: Sequence[WaitingInput], limits: Limits) -> int:
    """Returns what a batch costs, in tokens."""
    lengths = [each.tokens for each in batch]
    return sum(lengths) if limits.packed else max(lengths) * len(lengths)


@given(waiting_inputs, limits_strategy)
def test_bulk_takes_nothing_from_others(waiting: list[WaitingInput], limits: Limits) -> None:
    """While it is not bulk's turn, the same interactive inputs go as if no bulk waited."""
    interactive = [each for each in waiting if not each.bulk]
    taken = [each for each in batch_of(waiting, limits) if not each.bulk]
    assert taken == batch_of(interactive, limits)


@given(waiting_inputs, limits_strategy)
def test_bulk_fills_the_room_that_is_left(waiting: list[WaitingInput], limits: Limits) -> None:
    """All limits are kept, and bulk makes no batch longer."""
    batch = batch_of(waiting, limits)
    first = [each for each in batch if not each.bulk]
    if not first or len(first) == len(batch):
        return
    assert len(batch) <= limits.max_size
    assert cost(batch, limits) <= limits.max_tokens
    assert limits.packed or max(each.tokens for each in batch) == max(each.tokens for each in first)


@given(waiting_inputs, limits_strategy)
def test_no_room_is_left_for_another_bulk_input(waiting: list[WaitingInput], limits: Limits) -> None:
    """If batches are padded, an input fits that is no longer than the batch's longest."""
    result = plan(waiting, limits, NOW)
    batch = [waiting[i] for i in result.batch]
    if not batch or batch[0].bulk or len(batch) == limits.max_size:
        return
    left = (
        each
        for i, each in enumerate(waiting)
        if i not in result.batch
        and each.bulk
        and each.deadline > NOW
        and (limits.packed or each.tokens <= max(other.tokens for other in batch))
    )
    assert all(cost([*batch, each], limits) > limits.for_lane(bulk=True).max_tokens for each in left)


@given(waiting_inputs, limits_strategy, st.booleans())
def test_bulk_keeps_its_own_limit(waiting: list[WaitingInput], limits: Limits, leads: bool) -> None:
    """Interactive inputs beside it may exceed it, and so may a single input of bulk."""
    batch = batch_of(waiting, limits, BULKS_TURN if leads else INITIAL_STATE)
    bulk = [each for each in batch if each.bulk]
    if len(bulk) <= 1:
        return
    limit = limits.for_lane(bulk=True).max_tokens
    assert cost(bulk if leads else batch, limits) <= limit


@given(waiting_inputs, limits_strategy)
def test_when_it_is_bulks_turn_the_lanes_change_places(waiting: list[WaitingInput], limits: Limits) -> None:
    """Then interactive inputs fill the room that bulk leaves."""
    limits = limits._replace(max_bulk_tokens=None)  # otherwise the lanes would differ
    turned = [each._replace(bulk=not each.bulk) for each in waiting]
    assert plan(waiting, limits, NOW, BULKS_TURN) == plan(turned, limits, NOW)


@given(waiting_inputs, limits_strategy, st.integers(1, 20))
def test_without_padding_no_more_of_bulk_goes_first_than_it_is_owed(
    waiting: list[WaitingInput], limits: Limits, owed: int
) -> None:
    """More bulk goes only if none of the interactive inputs that are left would fit beside the owed tokens."""
    limits = limits._replace(packed=True, age_bound_s=NEVER_S)
    batch = batch_of(waiting, limits, SchedulerState(bulk_owed=owed))
    interactive = [each for each in batch if not each.bulk]
    bulk = [each for each in batch if each.bulk]
    sums = list(accumulate(each.tokens for each in bulk))
    lead = next((number for number, tokens in enumerate(sums, 1) if tokens >= owed), len(bulk))
    left = [each for each in waiting if each.deadline > NOW and not each.bulk and each not in interactive]
    if len(bulk) > lead:
        room = limits.max_tokens - sum(each.tokens for each in [*bulk[:lead], *interactive])
        assert lead + len(interactive) >= limits.max_size or all(each.tokens > room for each in left)


@given(st.floats(0.01, 0.9), st.lists(sizes, min_size=50, max_size=300))
def test_bulk_gets_its_share(share: float, batches: list[int]) -> None:
    """If both lanes always wait, bulk deviates from its share by less than a batch, for any size of batches."""
    deficit = DeficitCounter(share, NEVER_S)
    taken = {False: 0, True: 0}
    for now, tokens in enumerate(batches):
        bulk = deficit.tokens_owed(now) > 0
        taken[bulk] += tokens
        deficit.record(0 if bulk else tokens, tokens if bulk else 0, bulk_first=bulk, bulk_waits=True, now=now)
    together = sum(taken.values())
    assert share * together - max(batches) <= taken[True] <= share * together + max(batches)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=50))
def test_room_that_bulk_filled_is_not_saved_up(batches: list[tuple[int, int]]) -> None:
    """However much bulk got there, it is owed again once more interactive tokens went than its largest batch has."""
    deficit = DeficitCounter(0.5, NEVER_S)
    for interactive, bulk in batches:
        deficit.record(interactive, interactive + bulk, bulk_first=False, bulk_waits=True, now=0.0)
    limit = max(interactive + bulk for interactive, bulk in batches)
    deficit.record(limit + 1, 0, bulk_first=False, bulk_waits=True, now=0.0)
    assert deficit.tokens_owed(0.0) > 0


def test_bulk_that_does_not_wait_is_owed_nothing() -> None:
    """Interactive tokens that went while no bulk waited do not count."""
    deficit = DeficitCounter(0.5, NEVER_S)
    deficit.record(10_000, 0, bulk_first=False, bulk_waits=False, now=0.0)
    assert deficit.tokens_owed(0.0) == 0
    deficit.record(10, 0, bulk_first=False, bulk_waits=True, now=0.0)
    assert deficit.tokens_owed(0.0) == 10


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_bulk_is_passed_over_no_longer_than_its_bound(share: float) -> None:
    """Whatever its share; and it gets one turn, not all from then on."""
    deficit = DeficitCounter(share, 5.0)
    deficit.record(10, 10, bulk_first=False, bulk_waits=True, now=0.0)
    deficit.record(10, 1, bulk_first=False, bulk_waits=True, now=1.0)  # it filled room; another one waits
    assert [deficit.tokens_owed(now) for now in (1.0, 4.9, 5.0)] == [0, 0, 1]
    deficit.record(0, 10, bulk_first=True, bulk_waits=True, now=5.0)
    assert [deficit.tokens_owed(now) for now in (5.0, 9.9, 10.0)] == [0, 0, 1]
