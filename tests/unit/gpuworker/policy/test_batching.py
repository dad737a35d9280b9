"""Which inputs make the next batch: properties that hold for any waiting inputs, and single cases."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import SUSPECT_BOUND_S, Plan, SchedulerState, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits, max_runner_tokens

TICK_S = 0.05
times = st.integers(0, 40).map(lambda ticks: ticks * TICK_S)
NOW = 20 * TICK_S


@st.composite
def waiting_inputs(draw: st.DrawFn) -> list[WaitingInput]:
    """Inputs that may wait at NOW, in the order of arrival; many are of one length, and some of one age."""
    since = sorted(draw(st.lists(st.integers(0, 20).map(lambda ticks: ticks * TICK_S), max_size=30)))
    return [
        WaitingInput(
            draw(st.integers(1, 12)),
            each,
            draw(st.sampled_from([0.5, NOW, 1.05, 1.2, 9.0])),
            draw(ATTEMPTS),
            draw(st.sampled_from("abcdefgh")),
        )
        for each in since
    ]


ATTEMPTS = st.sampled_from([0, 0, 0, 0, 1, 2])
limits_strategy = st.builds(
    lambda **given: Limits(**given),  # noqa: PLW0108 - for a named tuple, builds() would also fill fields with a default
    max_size=st.integers(1, 10),
    max_tokens=st.integers(1, 60),
    wait_s=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    reserve_s=st.sampled_from([0.0, 0.1]),
    overhead_tokens=st.sampled_from([0.0, 1.0, 32.0, 1e6]),
)


def live(waiting: Sequence[WaitingInput], now: float = NOW) -> list[int]:
    """Returns the indices of the inputs that may still run."""
    return [i for i, each in enumerate(waiting) if each.deadline > now]


def due(waiting: Sequence[WaitingInput]) -> float:
    """Returns when the first suspect must have its turn: at once, if no other input was there before it."""
    first = min((waiting[i].since for i in live(waiting) if waiting[i].suspect), default=math.inf)
    before = any(waiting[i].since <= first and not waiting[i].suspect for i in live(waiting))
    return first + SUSPECT_BOUND_S if before else first


def padded(waiting: Sequence[WaitingInput], batch: Sequence[int]) -> int:
    """Returns the cost of a batch, in tokens."""
    return max(waiting[i].tokens for i in batch) * len(batch)


@given(waiting_inputs(), limits_strategy)
def test_each_input_is_planned_at_most_once(waiting: list[WaitingInput], limits: Limits) -> None:
    """No input is planned twice or past its deadline, and the expired are exactly those whose deadline has passed."""
    result = plan(waiting, limits, NOW)
    assert result.expired == tuple(i for i, each in enumerate(waiting) if each.deadline <= NOW)
    assert len(set(result.batch)) == len(result.batch)
    assert set(result.batch) <= set(live(waiting))


@given(waiting_inputs(), limits_strategy)
def test_a_batch_keeps_its_limits(waiting: list[WaitingInput], limits: Limits) -> None:
    """It keeps the maximum number of inputs and of tokens with padding; a single input may be longer."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        return  # an entry runs as a whole
    assert len(batch) <= limits.max_size
    assert len(batch) <= 1 or padded(waiting, batch) <= limits.max_tokens


@given(waiting_inputs(), limits_strategy)
def test_the_oldest_goes_first_past_the_age_bound(waiting: list[WaitingInput], limits: Limits) -> None:
    """Whatever fits better, the batch contains an input that has waited longest, if it has waited too long."""
    batch = plan(waiting, limits, NOW).batch
    if not batch:
        return
    first = min(waiting[i].since for i in live(waiting) if waiting[i].suspect == waiting[batch[0]].suspect)
    if NOW - first >= limits.age_bound_s and not waiting[batch[0]].suspect:
        assert first in [waiting[i].since for i in batch]


@given(waiting_inputs(), limits_strategy)
def test_equals_stay_in_the_order_of_arrival(waiting: list[WaitingInput], limits: Limits) -> None:
    """Of two inputs of one length, the later is not in a batch without the earlier, nor before it."""
    batch = plan(waiting, limits, NOW).batch
    for at, i in enumerate(batch):
        rivals = [j for j in live(waiting) if j < i and waiting[j].tokens == waiting[i].tokens]
        assert waiting[i].suspect or all(j in batch[:at] for j in rivals if not waiting[j].suspect)


COSTS = st.builds(Costs, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.001, 0.02]))


@given(waiting_inputs(), limits_strategy, COSTS)
def test_a_late_input_makes_way(waiting: list[WaitingInput], limits: Limits, costs: Costs) -> None:
    """A batch ends before the deadline of each of its inputs, unless no other input would be in time by itself."""
    result = plan(waiting, limits._replace(wait_s=0.0, costs=costs), NOW)
    if not result.batch or any(waiting[i].suspect for i in result.batch):
        return
    assert result.seconds == costs.seconds(padded(waiting, result.batch))
    late = {i for i in result.batch if waiting[i].deadline <= NOW + result.seconds}
    left = {i for i in live(waiting) if not waiting[i].suspect} - set(result.batch) - set(result.expired)
    in_time = {i for i in left if waiting[i].deadline > NOW + costs.seconds(waiting[i].tokens)}
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
    batch = plan(waiting, limits._replace(wait_s=0.0), NOW, SchedulerState(suspect_ran=True)).batch
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


@given(waiting_inputs(), limits_strategy)
def test_no_neighbor_would_improve_a_batch(waiting: list[WaitingInput], limits: Limits) -> None:
    """Not the next shorter input, nor the next longer one, nor one input less gives more tokens for the cost."""
    batch = plan(waiting, limits, NOW).batch
    if not batch or any(waiting[i].suspect for i in batch):
        return
    lengths = sorted(waiting[i].tokens for i in batch)
    first = min(waiting[i].since for i in live(waiting) if not waiting[i].suspect)
    overdue = NOW - first >= limits.age_bound_s
    others = [waiting[i].tokens for i in live(waiting) if i not in batch and not waiting[i].suspect]
    shorter = [tokens for tokens in others if tokens <= lengths[0]]
    longer = [tokens for tokens in others if tokens >= lengths[-1]]
    tried = [[max(shorter), *lengths]] if shorter else []
    tried += [[*lengths, min(longer)]] if longer else []
    tried += [] if overdue or len(lengths) == 1 else [lengths[1:], lengths[:-1]]
    for each in tried:
        if len(each) <= limits.max_size and (len(each) == 1 or each[-1] * len(each) <= limits.max_tokens):
            assert worth(each, limits) <= worth(lengths, limits) + 1e-12


def worth(lengths: Sequence[int], limits: Limits) -> float:
    """Returns tokens for the cost."""
    return sum(lengths) / (max(lengths) * len(lengths) + limits.overhead_tokens)


def run_all(
    arrivals: Sequence[WaitingInput], limits: Limits, run_s: float, start: float = 0.0
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Plans on a simulated clock until no input waits; returns the batches and the expired, by place in `arrivals`."""
    now, left, suspect_ran = start, list(range(len(arrivals))), False
    batches: list[tuple[int, ...]] = []
    expired: list[int] = []
    while left:
        there = [i for i in left if arrivals[i].since <= now]
        result = plan([arrivals[i] for i in there], limits, now, SchedulerState(suspect_ran=suspect_ran))
        gone = {there[i] for i in (*result.batch, *result.expired)}
        left = [i for i in left if i not in gone]
        expired += [there[i] for i in result.expired]
        if result.batch:
            batches.append(tuple(there[i] for i in result.batch))
            suspect_ran = arrivals[batches[-1][0]].suspect
            now += run_s
        elif left and not gone:
            coming = [arrivals[i].since for i in left if arrivals[i].since > now]
            now = min([*coming, *([] if result.wake_at is None else [result.wake_at])])
    return batches, expired


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


def test_before_the_bound_the_richest_run_goes_and_after_it_the_oldest() -> None:
    """The run with the most tokens for its cost goes, until an input has waited too long."""
    limits = Limits(2, 200, age_bound_s=0.2)
    waiting = [
        WaitingInput(3, 0.0, 9.0),
        WaitingInput(100, 0.1, 9.0),
        WaitingInput(4, 0.1, 9.0),
        WaitingInput(90, 0.1, 9.0),
    ]
    assert plan(waiting, limits, 0.15).batch == (3, 1)
    assert plan(waiting, limits, 0.2).batch == (0, 2)


def test_the_oldest_runs_with_the_neighbors_that_fit_best() -> None:
    """Neighbors in length on both sides join it, while they save more than their padding costs."""
    waiting = [WaitingInput(50, 0.0, 9.0), *(WaitingInput(tokens, 0.1, 9.0) for tokens in (10, 45, 54, 90, 47))]
    batch = plan(waiting, Limits(4, 1_000, age_bound_s=0.0), 1.0).batch
    assert sorted(waiting[i].tokens for i in batch) == [45, 47, 50, 54]


@pytest.mark.parametrize(("overhead_tokens", "together"), [(1.0, [50]), (1_000.0, [10, 50])])
def test_a_higher_fixed_cost_justifies_more_padding(overhead_tokens: float, together: list[int]) -> None:
    """On a device where only the number of batches counts, inputs of any length go together."""
    waiting = [WaitingInput(50, 0.0, 9.0), WaitingInput(10, 0.1, 9.0)]
    batch = plan(waiting, Limits(4, 1_000, overhead_tokens=overhead_tokens), 0.1).batch
    assert [waiting[i].tokens for i in batch] == together


def test_an_older_input_that_arrived_later_keeps_its_place() -> None:
    """One that comes back from a dead worker is older than those that arrived before it."""
    waiting = [*(WaitingInput(5, 1.0, 9.0) for _ in range(6)), WaitingInput(5, 0.0, 9.0), WaitingInput(9, 1.0, 9.0)]
    assert 6 in plan(waiting, Limits(2, 1_000), 1.1).batch


def test_an_input_too_long_for_a_batch_runs_by_itself() -> None:
    """It was already truncated to the model's limit, so it runs."""
    assert plan(
        [WaitingInput(900, 0.0, 9.0), WaitingInput(5, 0.0, 9.0)], Limits(8, 100, age_bound_s=0.0), 0.0
    ).batch == (0,)


def test_little_of_a_batch_is_padding() -> None:
    """For 256 log-normal lengths, as in real traffic, padding is less than a twentieth of the tokens that run."""
    rng = random.Random(7)
    lengths = [min(512, max(3, round(rng.lognormvariate(4.0, 0.8)))) for _ in range(256)]
    batches, _ = run_all([WaitingInput(tokens, 0.0, 1e9) for tokens in lengths], Limits(64, 1_024), run_s=0.0)
    cost = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert 1 - sum(lengths) / cost < 0.05


@given(waiting_inputs(), limits_strategy)
def test_a_packed_batch_goes_in_the_order_of_arrival(waiting: list[WaitingInput], limits: Limits) -> None:
    """Without padding, the oldest inputs that fit by the sum of their tokens go, and one more would not fit."""
    limits = limits._replace(packed=True, wait_s=0.0)
    batch = plan(waiting, limits, NOW).batch
    shared = [i for i in live(waiting) if not waiting[i].suspect]
    if not batch or waiting[batch[0]].suspect:
        return
    assert list(batch) == sorted(shared, key=lambda i: waiting[i].since)[: len(batch)]
    assert len(batch) <= limits.max_size
    assert len(batch) == 1 or sum(waiting[i].tokens for i in batch) <= limits.max_tokens
    following = sorted(shared, key=lambda i: waiting[i].since)[: len(batch) + 1]
    if len(following) > len(batch) and len(batch) < limits.max_size:
        assert sum(waiting[i].tokens for i in following) > limits.max_tokens


@pytest.mark.parametrize(
    ("total_tokens", "runners", "tokens"),
    [(100, 2, 256), (960, 2, 480), (3_000, 2, 512), (960, 3, 320), (600, 1, 300), (10_000, 1, 512)],
)
def test_a_batch_takes_a_runners_share(total_tokens: int, runners: int, tokens: int) -> None:
    """Half for one runner; but not too little for a batch's fixed cost, nor more than the limit."""
    assert max_runner_tokens(total_tokens, runners, Limits(64, 512, overhead_tokens=32.0)) == tokens
