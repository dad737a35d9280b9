"""The next batch, what expires, and how long to wait: properties that hold for any waiting inputs, and single cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import Plan, SchedulerState, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits
from gpuworker.policy.suspects import SUSPECT_BOUND_S
from tests.unit.gpuworker.policy.planning import COSTS, NOW, limits_strategy, live, padded, run_all, waiting_inputs


def due(waiting: Sequence[WaitingInput]) -> float:
    """Returns when the first suspect must have its turn: at once, if no other input was there before it."""
    first = min((waiting[i].since for i in live(waiting) if waiting[i].suspect), default=math.inf)
    before = any(waiting[i].since <= first and not waiting[i].suspect for i in live(waiting))
    return first + SUSPECT_BOUND_S if before else first


@given(waiting_inputs(), limits_strategy)
def test_each_input_is_planned_at_most_once(waiting: list[WaitingInput], limits: Limits) -> None:
    """No input is planned twice or past its deadline, and the expired are exactly those whose deadline has passed."""
    result = plan(waiting, limits, NOW)
    assert result.expired == tuple(i for i, each in enumerate(waiting) if each.deadline <= NOW)
    assert len(set(result.batch)) == len(result.batch)
    assert set(result.batch) <= set(live(waiting))


@given(waiting_inputs(), limits_strategy, COSTS)
def test_a_late_input_makes_way(waiting: list[WaitingInput], limits: Limits, costs: Costs) -> None:
    """A batch ends before the deadline of each of its inputs, unless no other input would be in time by itself."""
    result = plan(waiting, limits._replace(wait_s=0.0, costs=costs), NOW)
    if not result.batch or any(waiting[i].suspect for i in result.batch):
        return
    assert result.seconds == costs.least_seconds(padded(waiting, result.batch))
    late = {i for i in result.batch if waiting[i].deadline <= NOW + result.seconds}
    left = {i for i in live(waiting) if not waiting[i].suspect} - set(result.batch) - set(result.expired)
    in_time = {i for i in left if waiting[i].deadline > NOW + costs.least_seconds(waiting[i].tokens)}
    assert not late or (late == set(result.batch) and not in_time)


def test_an_input_that_is_late_only_beside_others_runs_alone() -> None:
    """It is preferred to one that is late in any batch."""
    waiting = [WaitingInput(1, 0.0, 1.05), WaitingInput(5, 0.0, 1.2), WaitingInput(5, 0.0, 1.05)]
    limits = Limits(2, 10, age_bound_s=0.0, overhead_tokens=1.0, costs=Costs(0.0, 0.02))
    result = plan(waiting, limits, NOW)
    assert (result.batch, result.expired) == ((0,), ())


@given(waiting_inputs(), limits_strategy, COSTS)
def test_only_late_inputs_expire_early(waiting: list[WaitingInput], limits: Limits, costs: Costs) -> None:
    """And never all inputs: without a batch, the engine would not learn that batches now take less."""
    result = plan(waiting, limits._replace(wait_s=0.0, costs=costs), NOW)
    early = [i for i in result.expired if waiting[i].deadline > NOW]
    assert len(set(result.expired)) == len(result.expired)
    assert not set(result.expired) & set(result.batch)
    longest_s = costs.seconds(max(limits.max_tokens, *(each.tokens for each in waiting), 1))
    assert all(waiting[i].deadline <= NOW + longest_s for i in early)
    assert result.batch or not live(waiting)


@given(waiting_inputs(), limits_strategy)
def test_a_suspect_shares_no_batch(waiting: list[WaitingInput], limits: Limits) -> None:
    """All inputs of its entry run together, and no other input with them."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        entries = {waiting[i].entry for i in batch}
        assert len(entries) == 1
        assert set(batch) == {i for i in live(waiting) if waiting[i].suspect and waiting[i].entry in entries}


@given(waiting_inputs(), limits_strategy)
def test_suspects_go_last(waiting: list[WaitingInput], limits: Limits) -> None:
    """They go only if no other input waits, or if they are due; the least accused goes first."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        assert due(waiting) <= NOW or all(waiting[i].suspect for i in live(waiting))
        min_attempts = min(waiting[i].attempts for i in live(waiting) if waiting[i].suspect)
        assert min_attempts in {waiting[i].attempts for i in batch}
    elif batch:
        assert due(waiting) > NOW


@given(waiting_inputs(), limits_strategy)
def test_no_suspect_begins_on_a_busy_device(waiting: list[WaitingInput], limits: Limits) -> None:
    """When a suspect is due, nothing begins; all else is planned as on an idle device."""
    idle, busy = plan(waiting, limits, NOW), plan(waiting, limits, NOW, SchedulerState(busy=True))
    if any(waiting[i].suspect for i in idle.batch):
        assert busy == Plan(expired=idle.expired)
    else:
        assert busy == idle


@given(waiting_inputs(), limits_strategy)
def test_after_a_suspect_others_have_their_turn(waiting: list[WaitingInput], limits: Limits) -> None:
    """However long the next suspect has waited."""
    batch = plan(waiting, limits._replace(wait_s=0.0), NOW, SchedulerState(suspects_had_turn=True)).batch
    others = [i for i in live(waiting) if not waiting[i].suspect]
    assert bool(batch) == bool(live(waiting))
    assert not others or not any(waiting[i].suspect for i in batch)


@given(waiting_inputs(), limits_strategy)
def test_without_a_wait_an_idle_engine_always_works(waiting: list[WaitingInput], limits: Limits) -> None:
    """With a wait of 0 there is a batch whenever an input may still run."""
    limits = limits._replace(wait_s=0.0)
    result = plan(waiting, limits, NOW)
    assert bool(result.batch) == bool(live(waiting))
    assert result.wake_at is None


@given(waiting_inputs(), limits_strategy)
def test_a_wait_is_for_a_batch_that_could_grow_and_ends_in_time(waiting: list[WaitingInput], limits: Limits) -> None:
    """There is a batch, or a later time to look again: counted from the first input, and before the oldest deadline."""
    result = plan(waiting, limits, NOW)
    shared = [waiting[i] for i in live(waiting) if not waiting[i].suspect]
    assert result.batch == () or result.wake_at is None
    if result.wake_at is None:
        return
    assert not result.full
    assert result.wake_at > NOW
    assert limits.wait_s is not None
    ends = min(each.since for each in shared) + limits.wait_s, min(each.deadline for each in shared) - limits.reserve_s
    assert result.wake_at == min(*ends, due(waiting))


@given(waiting_inputs(), limits_strategy)
def test_a_batch_is_full_if_one_more_input_would_exceed_a_limit(waiting: list[WaitingInput], limits: Limits) -> None:
    """There is nothing to wait for: the waiting inputs and one more of the longest would exceed a limit."""
    result = plan(waiting, limits, NOW)
    shared = [waiting[i].tokens for i in live(waiting) if not waiting[i].suspect]
    if not result.batch or any(waiting[i].suspect for i in result.batch):
        return
    number = len(shared) + 1
    assert result.full == (number > limits.max_size or max(shared) * number > limits.max_tokens)


@given(waiting_inputs(), limits_strategy, st.sampled_from([0.0, 0.03, 0.4]))
def test_planned_until_empty_each_input_runs_once_or_expires(
    waiting: list[WaitingInput], limits: Limits, run_s: float
) -> None:
    """No input is lost or doubled, and no plan waits for ever."""
    batches, expired = run_all(waiting, limits, run_s)
    ran = [i for batch in batches for i in batch]
    assert sorted(ran + expired) == list(range(len(waiting)))


@given(st.integers(1, 20), st.integers(1, 8))
def test_suspects_do_not_starve(number: int, max_size: int) -> None:
    """A suspect has its turn even if more inputs were there before it than the engine runs within its bound."""
    arrivals = [WaitingInput(5, 0.0, 1e9, attempts=1)]
    arrivals += [WaitingInput(5, -1.0, 1e9) for _ in range(number * 50)]
    batches, _ = run_all(arrivals, Limits(max_size, 10_000), run_s=0.01 * max_size)
    assert batches.index((0,)) <= SUSPECT_BOUND_S / (0.01 * max_size) + 1


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 4))
def test_suspects_alternate_with_later_inputs(before: int, after: int, suspects: int) -> None:
    """Not with earlier ones: those would be lost with the engine, if a suspect is the cause."""
    arrivals = [WaitingInput(5, 0.5, 1e9, attempts=1, entry=str(i)) for i in range(suspects)]
    arrivals += [WaitingInput(5, 0.4, 1e9)] * before + [WaitingInput(5, 0.6, 1e9)] * after
    batches, _ = run_all(arrivals, Limits(1, 10_000), run_s=1e-6, start=0.7)
    assert [arrivals[i].suspect for (i,) in batches[:before]] == [False] * before
    both = 2 * min(after, suspects)
    assert [arrivals[i].suspect for (i,) in batches[before:][:both]] == [at % 2 == 0 for at in range(both)]


def test_suspects_have_as_much_time_as_others() -> None:
    """When a worker has died with a full batch, a loaded one runs its inputs in seconds, not each behind a batch."""
    suspects = [WaitingInput(5, 0.0, 10.0, attempts=1, entry=str(i)) for i in range(32)]
    others = [WaitingInput(5, -1.0, 1e9) for _ in range(32 * 30)]
    batches, expired = run_all(suspects + others, Limits(32, 10_000), run_s=1.0, suspect_s=0.1)
    assert expired == []
    at = [number for number, batch in enumerate(batches) if batch[0] < len(suspects)]
    assert len(at) == len(suspects)
    num_batches_before_last = at[-1] + 1 - len(suspects)
    assert num_batches_before_last <= 1 + 32 * 0.1 + 1, "one before they are due, then one for each second of theirs"


@given(st.lists(st.integers(1, 512), min_size=2, max_size=60), st.integers(1, 8))
def test_under_a_constant_stream_no_input_waits_much_beyond_its_bound(lengths: list[int], max_size: int) -> None:
    """Below capacity, the age of an input when it runs is at most the bound and the runs that it had to wait for."""
    arrivals = [WaitingInput(tokens, i * 0.01, 1e9) for i, tokens in enumerate(lengths)]
    limits, run_s = Limits(max_size, 512 * max_size), 0.009
    now, done, left = 0.0, [], list(range(len(arrivals)))
    while left:
        there = [i for i in left if arrivals[i].since <= now]
        result = plan([arrivals[i] for i in there], limits, now)
        done += [now - arrivals[there[i]].since for i in result.batch]
        left = [i for i in left if i not in {there[i] for i in result.batch}]
        now = now + run_s if result.batch else min(arrivals[i].since for i in left)
    assert max(done) <= limits.age_bound_s + 2 * run_s


def test_without_inputs_there_is_no_plan() -> None:
    """The plan is empty if no input waits."""
    assert plan([], Limits(8, 100), 0.0) == Plan()


@pytest.mark.parametrize("now", [0.3, 0.5, 0.7999])
def test_a_wait_is_honored_to_its_end(now: float) -> None:
    """It counts from the first input, however many come after it, until the batch is full or the time is over."""
    limits = Limits(4, 1_000, wait_s=0.5, age_bound_s=0.1)
    some = [WaitingInput(10, 0.3, 9.0), WaitingInput(12, 0.4, 9.0)]
    result = plan(some, limits, now)
    assert result.batch == ()
    assert result.wake_at == pytest.approx(0.8)
    assert plan(some, limits, 0.8).batch == (0, 1)
    more = [*some, WaitingInput(10, now, 9.0), WaitingInput(10, now, 9.0)]
    assert plan(more, limits, now).full
    assert len(plan(more, limits, now).batch) == 4


def test_a_wait_leaves_time_to_run_before_the_oldest_deadline() -> None:
    """The reserve is kept for the run itself."""
    limits = Limits(4, 1_000, wait_s=5.0, reserve_s=0.2)
    waiting = [WaitingInput(10, 0.0, 9.0), WaitingInput(10, 0.0, 1.0)]
    assert plan(waiting, limits, 0.5).wake_at == pytest.approx(0.8)
    assert plan(waiting, limits, 0.8).batch == (0, 1)


PREFERRED = Limits(32, 10_000, wait_s=0.5, packed=True, preferred_sizes=(8, 16, 32))


@given(st.integers(1, 80), st.sampled_from([0.0, 0.5, None]), st.booleans())
def test_a_batch_that_reaches_a_preferred_size_goes_at_once_with_the_largest_that_it_reaches(
    number: int, wait_s: float | None, packed: bool
) -> None:
    """With any wait. The oldest inputs go; the others are left for the next batch."""
    waiting = [WaitingInput(1, i * 0.001, 9.0) for i in range(number)]
    limits = PREFERRED._replace(wait_s=wait_s, packed=packed, age_bound_s=9.0)
    result = plan(waiting, limits, 0.1)
    reached = max((size for size in limits.preferred_sizes if size <= number), default=0)
    if reached:
        assert result.batch == tuple(range(reached))
        assert result.full == (number >= 32)
    elif wait_s:
        assert result.batch == ()
        assert result.wake_at == pytest.approx(wait_s)
    else:
        assert result.batch == tuple(range(number))


def test_a_batch_below_all_preferred_sizes_goes_as_it_is_when_the_wait_is_over() -> None:
    """The wait counts from the first input, and leaves time to run before the oldest deadline."""
    waiting = [WaitingInput(1, 0.0, 9.0), WaitingInput(1, 0.4, 0.7)]
    limits = PREFERRED._replace(reserve_s=0.3)
    assert plan(waiting, limits, 0.39).wake_at == pytest.approx(0.4)
    assert plan(waiting, limits, 0.4).batch == (0, 1)
    assert plan(waiting[:1], limits, 0.4).wake_at == pytest.approx(0.5)
    assert plan(waiting[:1], limits, 0.5).batch == (0,)


def test_a_batch_that_is_full_by_its_tokens_does_not_wait_for_a_preferred_size() -> None:
    """No wait would make it larger; one that reaches a preferred size by its tokens is cut to it."""
    assert plan([WaitingInput(30, 0.0, 9.0)] * 6, PREFERRED._replace(max_tokens=100), 0.1).batch == (0, 1, 2)
    assert len(plan([WaitingInput(10, 0.0, 9.0)] * 20, PREFERRED._replace(max_tokens=100), 0.1).batch) == 8


def test_bulk_helps_to_reach_a_preferred_size() -> None:
    """It fills the room of interactive inputs, which go first."""
    waiting = [WaitingInput(1, 0.1, 9.0)] * 5 + [WaitingInput(1, 0.0, 9.0, bulk=True)] * 5
    assert plan(waiting, PREFERRED, 0.1).batch == (0, 1, 2, 3, 4, 5, 6, 7)


@given(waiting_inputs(), limits_strategy, st.sets(st.integers(1, 10), min_size=1), st.sampled_from([0.0, 0.03, 0.4]))
def test_with_preferred_sizes_each_input_runs_once_within_the_limits_or_expires(
    waiting: list[WaitingInput], limits: Limits, sizes: set[int], run_s: float
) -> None:
    """Nothing starves, no batch is larger than the largest preferred size, and a wait ends in time."""
    limits = limits._replace(preferred_sizes=tuple(sorted(sizes)), max_size=max(sizes))
    batches, expired = run_all(waiting, limits, run_s)
    assert sorted([i for batch in batches for i in batch] + expired) == list(range(len(waiting)))
    assert all(len(batch) <= max(sizes) for batch in batches if not waiting[batch[0]].suspect)
    result = plan(waiting, limits, NOW)
    if result.wake_at is not None:
        oldest = min(each.since for each in waiting if each.deadline > NOW and not each.suspect)
        assert NOW < result.wake_at <= oldest + (limits.wait_s or 0.0)


@pytest.mark.parametrize("packed", [False, True])
def test_inputs_that_would_all_be_late_together_run_as_many_as_are_in_time(packed: bool) -> None:
    """A batch of one input took a second, so a batch of 200 is expected to take 200 s: 119 of them are in time.

    With one input at a time the engine would never learn that the time does not depend on the size.
    """
    waiting = [WaitingInput(1, i / 1_000, NOW + 120, entry=f"e{i}") for i in range(600)]
    limits = Limits(200, 10_000, packed=packed, costs=Costs(0.0, 1.0))
    assert plan(waiting, limits, NOW).batch == tuple(range(119))
    assert plan(waiting, limits._replace(max_tokens=100, max_size=1_000), NOW).batch == tuple(range(100))
    assert plan(waiting, limits._replace(costs=Costs(119.5, 0.4)), NOW).batch == (0,)


@pytest.mark.parametrize("packed", [False, True])
def test_what_small_batches_do_not_tell_refuses_no_larger_one(packed: bool) -> None:
    """Batches of 3 tokens took 0.4 s each, so 300 tokens might take 40 s: but as likely 0.5 s, if 0.4 s are fixed.

    If one of two long inputs of a request expired, the request would fail, and nothing larger would ever run.
    """
    waiting = [WaitingInput(300, 0.0, NOW + 10, entry="e") for _ in range(2)]
    limits = Limits(32, 300, packed=packed, costs=Costs(0.0, 0.4 / 3, max_tokens=3))
    result = plan(waiting, limits, NOW)
    assert (result.batch, result.expired) == ((0,), ())
    assert plan(waiting, limits._replace(costs=Costs(0.0, 0.4 / 3)), NOW).expired == (0,)
