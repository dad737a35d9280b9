"""Which inputs make the next batch: properties that hold for whatever waits, and the cases they do not name."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import SUSPECT_BOUND_S, Limits, Plan, Turn, Waiting, plan, share
from gpuworker.policy.costs import Costs

TICK_S = 0.05
times = st.integers(0, 40).map(lambda ticks: ticks * TICK_S)
NOW = 20 * TICK_S


@st.composite
def waitings(draw: st.DrawFn) -> list[Waiting]:
    """What may wait at NOW, in the order of arrival; many are of one length, and some of one age."""
    since = sorted(draw(st.lists(st.integers(0, 20).map(lambda ticks: ticks * TICK_S), max_size=30)))
    return [
        Waiting(
            draw(st.integers(1, 12)),
            each,
            draw(st.sampled_from([0.5, NOW, 1.05, 1.2, 9.0])),
            draw(ATTEMPTS),
            draw(st.sampled_from("abcdefgh")),
        )
        for each in since
    ]


ATTEMPTS = st.sampled_from([0, 0, 0, 0, 1, 2])
bounds = st.builds(
    lambda **given: Limits(**given),  # noqa: PLW0108 - of a named tuple builds() would fill what has a default too
    max_size=st.integers(1, 10),
    max_tokens=st.integers(1, 60),
    wait_s=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    reserve_s=st.sampled_from([0.0, 0.1]),
    overhead_tokens=st.sampled_from([0.0, 1.0, 32.0, 1e6]),
)


def live(waiting: Sequence[Waiting], now: float = NOW) -> list[int]:
    """Returns the indices of what may still run."""
    return [i for i, each in enumerate(waiting) if each.deadline > now]


def due(waiting: Sequence[Waiting]) -> float:
    """Returns when the first suspect must have its turn: at once, if nothing was there before it."""
    first = min((waiting[i].since for i in live(waiting) if waiting[i].suspect), default=math.inf)
    before = any(waiting[i].since <= first and not waiting[i].suspect for i in live(waiting))
    return first + SUSPECT_BOUND_S if before else first


def padded(waiting: Sequence[Waiting], batch: Sequence[int]) -> int:
    """Returns what a batch costs."""
    return max(waiting[i].tokens for i in batch) * len(batch)


@given(waitings(), bounds)
def test_each_input_has_one_fate(waiting: list[Waiting], limits: Limits) -> None:
    """Nothing is planned twice or past its deadline, and the expired are exactly those whose deadline has passed."""
    made = plan(waiting, limits, NOW)
    assert made.expired == tuple(i for i, each in enumerate(waiting) if each.deadline <= NOW)
    assert len(set(made.batch)) == len(made.batch)
    assert set(made.batch) <= set(live(waiting))


@given(waitings(), bounds)
def test_a_batch_keeps_its_limits(waiting: list[Waiting], limits: Limits) -> None:
    """At most so many inputs and so many tokens with padding; a single input may be longer than that."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        return  # an entry runs whole
    assert len(batch) <= limits.max_size
    assert len(batch) <= 1 or padded(waiting, batch) <= limits.max_tokens


@given(waitings(), bounds)
def test_the_oldest_goes_first_past_the_age_bound(waiting: list[Waiting], limits: Limits) -> None:
    """Whatever fits better, a batch never leaves behind an input that has waited longest and too long."""
    batch = plan(waiting, limits, NOW).batch
    if not batch:
        return
    first = min(waiting[i].since for i in live(waiting) if waiting[i].suspect == waiting[batch[0]].suspect)
    if NOW - first >= limits.age_bound_s and not waiting[batch[0]].suspect:
        assert first in [waiting[i].since for i in batch]


@given(waitings(), bounds)
def test_equals_stay_in_the_order_of_arrival(waiting: list[Waiting], limits: Limits) -> None:
    """Of two inputs of one length, the later is not in a batch without the earlier, nor before it."""
    batch = plan(waiting, limits, NOW).batch
    for at, i in enumerate(batch):
        rivals = [j for j in live(waiting) if j < i and waiting[j].tokens == waiting[i].tokens]
        assert waiting[i].suspect or all(j in batch[:at] for j in rivals if not waiting[j].suspect)


COSTS = st.builds(Costs, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.001, 0.02]))


@given(waitings(), bounds, COSTS)
def test_what_would_come_late_makes_way(waiting: list[Waiting], limits: Limits, costs: Costs) -> None:
    """A batch ends before the deadline of each of its inputs, unless nothing that is left would, run alone."""
    made = plan(waiting, limits._replace(wait_s=0.0, costs=costs), NOW)
    if not made.batch or any(waiting[i].suspect for i in made.batch):
        return
    assert made.seconds == costs.seconds(padded(waiting, made.batch))
    late = {i for i in made.batch if waiting[i].deadline <= NOW + made.seconds}
    left = {i for i in live(waiting) if not waiting[i].suspect} - set(made.batch) - set(made.expired)
    in_time = {i for i in left if waiting[i].deadline > NOW + costs.seconds(waiting[i].tokens)}
    assert not late or (late == set(made.batch) and not in_time)


def test_one_that_came_late_only_beside_others_runs_alone() -> None:
    """Rather than one that is late whatever happens."""
    waiting = [Waiting(1, 0.0, 1.05), Waiting(5, 0.0, 1.2), Waiting(5, 0.0, 1.05)]
    limits = Limits(2, 10, age_bound_s=0.0, overhead_tokens=1.0, costs=Costs(0.0, 0.02))
    made = plan(waiting, limits, NOW)
    assert (made.batch, made.expired) == ((0,), ())


@given(waitings(), bounds, COSTS)
def test_only_what_would_come_late_expires_early(waiting: list[Waiting], limits: Limits, costs: Costs) -> None:
    """And never everything: without a batch, nobody would learn that it takes less by now."""
    made = plan(waiting, limits._replace(wait_s=0.0, costs=costs), NOW)
    early = [i for i in made.expired if waiting[i].deadline > NOW]
    assert len(set(made.expired)) == len(made.expired)
    assert not set(made.expired) & set(made.batch)
    longest_s = costs.seconds(max(limits.max_tokens, *(each.tokens for each in waiting), 1))
    assert all(waiting[i].deadline <= NOW + longest_s for i in early)
    assert made.batch or not live(waiting)


@given(waitings(), bounds)
def test_a_suspect_shares_no_batch(waiting: list[Waiting], limits: Limits) -> None:
    """The inputs of its entry run together, all of them, and nothing else does."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        entries = {waiting[i].entry for i in batch}
        assert len(entries) == 1
        assert set(batch) == {i for i in live(waiting) if waiting[i].suspect and waiting[i].entry in entries}


@given(waitings(), bounds)
def test_suspects_go_last(waiting: list[Waiting], limits: Limits) -> None:
    """Only when nothing else waits, or when they are due; and of them the least accused goes first."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        assert due(waiting) <= NOW or all(waiting[i].suspect for i in live(waiting))
        least = min(waiting[i].attempts for i in live(waiting) if waiting[i].suspect)
        assert least in {waiting[i].attempts for i in batch}
    elif batch:
        assert due(waiting) > NOW


@given(waitings(), bounds)
def test_no_suspect_begins_on_a_busy_device(waiting: list[Waiting], limits: Limits) -> None:
    """And when it is the turn of one, nothing begins; all else is planned as on an idle device."""
    idle, busy = plan(waiting, limits, NOW), plan(waiting, limits, NOW, Turn(busy=True))
    if any(waiting[i].suspect for i in idle.batch):
        assert busy == Plan(expired=idle.expired)
    else:
        assert busy == idle


@given(waitings(), bounds)
def test_after_a_suspect_others_have_their_turn(waiting: list[Waiting], limits: Limits) -> None:
    """However long the next suspect has waited."""
    batch = plan(waiting, limits._replace(wait_s=0.0), NOW, Turn(suspect_ran=True)).batch
    others = [i for i in live(waiting) if not waiting[i].suspect]
    assert bool(batch) == bool(live(waiting))
    assert not others or not any(waiting[i].suspect for i in batch)


@given(waitings(), bounds)
def test_without_a_wait_an_idle_engine_always_works(waiting: list[Waiting], limits: Limits) -> None:
    """With a wait of 0 there is a batch whenever an input may still run."""
    limits = limits._replace(wait_s=0.0)
    made = plan(waiting, limits, NOW)
    assert bool(made.batch) == bool(live(waiting))
    assert made.wake_at is None


@given(waitings(), bounds)
def test_a_wait_is_for_a_batch_that_could_grow_and_ends_in_time(waiting: list[Waiting], limits: Limits) -> None:
    """There is a batch, or a later time to look again: from the first input, and before the oldest deadline."""
    made = plan(waiting, limits, NOW)
    shared = [waiting[i] for i in live(waiting) if not waiting[i].suspect]
    assert made.batch == () or made.wake_at is None
    if made.wake_at is None:
        return
    assert not made.full
    assert made.wake_at > NOW
    assert limits.wait_s is not None
    ends = min(each.since for each in shared) + limits.wait_s, min(each.deadline for each in shared) - limits.reserve_s
    assert made.wake_at == min(*ends, due(waiting))


@given(waitings(), bounds)
def test_a_batch_is_full_when_what_waits_could_not_all_go_with_one_more(waiting: list[Waiting], limits: Limits) -> None:
    """Then there is nothing to wait for: one more of the longest would break a limit."""
    made = plan(waiting, limits, NOW)
    shared = [waiting[i].tokens for i in live(waiting) if not waiting[i].suspect]
    if not made.batch or any(waiting[i].suspect for i in made.batch):
        return
    number = len(shared) + 1
    assert made.full == (number > limits.max_size or max(shared) * number > limits.max_tokens)


@given(waitings(), bounds)
def test_no_neighbour_would_have_made_a_batch_better(waiting: list[Waiting], limits: Limits) -> None:
    """More tokens for the cost: not with the next shorter input, nor with the next longer one, nor without one."""
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
    arrivals: Sequence[Waiting], limits: Limits, run_s: float, start: float = 0.0
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Plans on a clock of its own until nothing waits; returns the batches and the expired, by place in `arrivals`."""
    now, left, suspect_ran = start, list(range(len(arrivals))), False
    batches: list[tuple[int, ...]] = []
    expired: list[int] = []
    while left:
        there = [i for i in left if arrivals[i].since <= now]
        made = plan([arrivals[i] for i in there], limits, now, Turn(suspect_ran=suspect_ran))
        gone = {there[i] for i in (*made.batch, *made.expired)}
        left = [i for i in left if i not in gone]
        expired += [there[i] for i in made.expired]
        if made.batch:
            batches.append(tuple(there[i] for i in made.batch))
            suspect_ran = arrivals[batches[-1][0]].suspect
            now += run_s
        elif left and not gone:
            coming = [arrivals[i].since for i in left if arrivals[i].since > now]
            now = min([*coming, *([] if made.wake_at is None else [made.wake_at])])
    return batches, expired


@given(waitings(), bounds, st.sampled_from([0.0, 0.03, 0.4]))
def test_planned_until_empty_each_input_runs_once_or_expires(
    waiting: list[Waiting], limits: Limits, run_s: float
) -> None:
    """Over the whole life of what arrives, nothing is lost or doubled, and no plan waits for ever."""
    batches, expired = run_all(waiting, limits, run_s)
    ran = [i for batch in batches for i in batch]
    assert sorted(ran + expired) == list(range(len(waiting)))


@given(st.integers(1, 20), st.integers(1, 8))
def test_suspects_do_not_starve(number: int, max_size: int) -> None:
    """One that must run alone has its turn although there are more before it than the engine runs in its bound."""
    arrivals = [Waiting(5, 0.0, 1e9, attempts=1)]
    arrivals += [Waiting(5, -1.0, 1e9) for _ in range(number * 50)]
    batches, _ = run_all(arrivals, Limits(max_size, 10_000), run_s=0.01 * max_size)
    assert batches.index((0,)) <= SUSPECT_BOUND_S / (0.01 * max_size) + 1


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 4))
def test_suspects_take_turns_with_what_came_after_them(before: int, after: int, suspects: int) -> None:
    """Not with what was there before: those would be lost with the engine, if one of them is to blame."""
    arrivals = [Waiting(5, 0.5, 1e9, attempts=1, entry=str(i)) for i in range(suspects)]
    arrivals += [Waiting(5, 0.4, 1e9)] * before + [Waiting(5, 0.6, 1e9)] * after
    batches, _ = run_all(arrivals, Limits(1, 10_000), run_s=1e-6, start=0.7)
    assert [arrivals[i].suspect for (i,) in batches[:before]] == [False] * before
    both = 2 * min(after, suspects)
    assert [arrivals[i].suspect for (i,) in batches[before:][:both]] == [at % 2 == 0 for at in range(both)]


@given(st.lists(st.integers(1, 512), min_size=2, max_size=60), st.integers(1, 8))
def test_under_a_constant_stream_nothing_waits_much_beyond_its_bound(lengths: list[int], max_size: int) -> None:
    """Below capacity, the age of an input when it runs is at most the bound, and the runs it had to wait for."""
    arrivals = [Waiting(tokens, i * 0.01, 1e9) for i, tokens in enumerate(lengths)]
    limits, run_s = Limits(max_size, 512 * max_size), 0.009
    now, done, left = 0.0, [], list(range(len(arrivals)))
    while left:
        there = [i for i in left if arrivals[i].since <= now]
        made = plan([arrivals[i] for i in there], limits, now)
        done += [now - arrivals[there[i]].since for i in made.batch]
        left = [i for i in left if i not in {there[i] for i in made.batch}]
        now = now + run_s if made.batch else min(arrivals[i].since for i in left)
    assert max(done) <= limits.age_bound_s + 2 * run_s


def test_nothing_waits_nothing_is_planned() -> None:
    """No inputs, no plan."""
    assert plan([], Limits(8, 100), 0.0) == Plan()


@pytest.mark.parametrize("now", [0.3, 0.5, 0.7999])
def test_a_wait_is_honoured_to_its_end(now: float) -> None:
    """From the first input on, however many come after it, until the batch is full or the time is over."""
    limits = Limits(4, 1_000, wait_s=0.5, age_bound_s=0.1)
    some = [Waiting(10, 0.3, 9.0), Waiting(12, 0.4, 9.0)]
    made = plan(some, limits, now)
    assert made.batch == ()
    assert made.wake_at == pytest.approx(0.8)
    assert plan(some, limits, 0.8).batch == (0, 1)
    more = [*some, Waiting(10, now, 9.0), Waiting(10, now, 9.0)]
    assert plan(more, limits, now).full
    assert len(plan(more, limits, now).batch) == 4


def test_a_wait_leaves_time_to_run_before_the_oldest_deadline() -> None:
    """The reserve is kept for the run itself."""
    limits = Limits(4, 1_000, wait_s=5.0, reserve_s=0.2)
    waiting = [Waiting(10, 0.0, 9.0), Waiting(10, 0.0, 1.0)]
    assert plan(waiting, limits, 0.5).wake_at == pytest.approx(0.8)
    assert plan(waiting, limits, 0.8).batch == (0, 1)


def test_before_the_bound_the_richest_run_goes_and_after_it_the_oldest() -> None:
    """The most tokens for one run of the model; until an input has waited too long."""
    limits = Limits(2, 200, age_bound_s=0.2)
    waiting = [Waiting(3, 0.0, 9.0), Waiting(100, 0.1, 9.0), Waiting(4, 0.1, 9.0), Waiting(90, 0.1, 9.0)]
    assert plan(waiting, limits, 0.15).batch == (3, 1)
    assert plan(waiting, limits, 0.2).batch == (0, 2)


def test_the_oldest_takes_along_what_makes_the_best_batch() -> None:
    """Neighbours in length on both sides, as far as they save more than their padding costs."""
    waiting = [Waiting(50, 0.0, 9.0), *(Waiting(tokens, 0.1, 9.0) for tokens in (10, 45, 54, 90, 47))]
    batch = plan(waiting, Limits(4, 1_000, age_bound_s=0.0), 1.0).batch
    assert sorted(waiting[i].tokens for i in batch) == [45, 47, 50, 54]


@pytest.mark.parametrize(("overhead_tokens", "together"), [(1.0, [50]), (1_000.0, [10, 50])])
def test_the_dearer_a_batch_as_such_the_more_padding_is_worth_it(overhead_tokens: float, together: list[int]) -> None:
    """On a device where only the number of batches counts, inputs of any length go together."""
    waiting = [Waiting(50, 0.0, 9.0), Waiting(10, 0.1, 9.0)]
    batch = plan(waiting, Limits(4, 1_000, overhead_tokens=overhead_tokens), 0.1).batch
    assert [waiting[i].tokens for i in batch] == together


def test_an_oldest_that_arrived_later_is_not_overtaken_by_its_equals() -> None:
    """One that comes back from a dead worker is older than what arrived before it, and keeps its place."""
    waiting = [*(Waiting(5, 1.0, 9.0) for _ in range(6)), Waiting(5, 0.0, 9.0), Waiting(9, 1.0, 9.0)]
    assert 6 in plan(waiting, Limits(2, 1_000), 1.1).batch


def test_what_is_too_long_for_a_batch_runs_by_itself() -> None:
    """It has been cut to what the model takes, so it runs."""
    assert plan([Waiting(900, 0.0, 9.0), Waiting(5, 0.0, 9.0)], Limits(8, 100, age_bound_s=0.0), 0.0).batch == (0,)


def test_little_of_a_batch_is_padding() -> None:
    """Of 256 log-normal lengths, as traffic has them, less than a twentieth of what the model runs is padding."""
    rng = random.Random(7)
    lengths = [min(512, max(3, round(rng.lognormvariate(4.0, 0.8)))) for _ in range(256)]
    batches, _ = run_all([Waiting(tokens, 0.0, 1e9) for tokens in lengths], Limits(64, 1_024), run_s=0.0)
    cost = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert 1 - sum(lengths) / cost < 0.05


@given(waitings(), bounds)
def test_a_packed_batch_goes_in_the_order_of_arrival(waiting: list[Waiting], limits: Limits) -> None:
    """Nothing is padded: the oldest go, as many as fit by the sum of their tokens, and one more would not fit."""
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
    """Half, if there is one; as long as that is not too small for a batch's fixed part, nor larger than allowed."""
    assert share(total_tokens, runners, Limits(64, 512, overhead_tokens=32.0)) == tokens
