"""Short inputs go before long ones, and long ones do not starve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import Plan, SchedulerState, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits
from gpuworker.policy.short_first import OVERLOADED_S, is_long, long_since_short
from shared.long_entries import min_long_tokens

LIMITS = Limits(8, 100, packed=True, costs=Costs(0.001, 0.001), min_long_tokens=min_long_tokens(100))
"""A batch takes 1 ms and 1 ms for each token."""

LATER = 1e9


def short(since: float = 0.0, tokens: int = 5) -> WaitingInput:
    """Returns the only input of an entry."""
    return WaitingInput(tokens, since, LATER, entry_tokens=tokens)


def long(since: float = 0.0, number: int = 4, tokens: int = 40) -> list[WaitingInput]:
    """Returns all inputs of a long entry."""
    return [WaitingInput(tokens, since, LATER, entry_inputs=number, entry_tokens=number * tokens)] * number


@st.composite
def arrivals(draw: st.DrawFn) -> list[WaitingInput]:
    """Short inputs and entries of several inputs, of any length, at any time, in the order of arrival."""
    inputs: list[WaitingInput] = []
    for since in sorted(draw(st.lists(st.floats(0, 2.0), min_size=1, max_size=25))):
        is_one = draw(st.booleans())
        inputs += [short(since, draw(st.integers(1, 30)))] if is_one else long(since, draw(st.integers(1, 6)))
    return inputs


limits_strategy = st.builds(
    lambda max_tokens, **given: Limits(max_tokens=max_tokens, min_long_tokens=min_long_tokens(max_tokens), **given),
    max_size=st.integers(1, 10),
    max_tokens=st.integers(40, 200),
    age_bound_s=st.sampled_from([0.0, 0.2, 100.0]),
    packed=st.booleans(),
    costs=st.sampled_from([None, Costs(0.01, 0.0), Costs(0.001, 0.001), Costs(0.0, 0.002), Costs(0.1, 0.001)]),
)


def run(inputs: Sequence[WaitingInput], limits: Limits) -> list[tuple[float, list[int], Plan, list[int]]]:
    """Plans on a simulated clock until no input waits: of each batch its time, what waited, its plan, its inputs."""
    now, left, since_short = 0.0, list(range(len(inputs))), math.inf
    batches = []
    while left:
        there = [i for i in left if inputs[i].since <= now]
        result = plan([inputs[i] for i in there], limits, now, SchedulerState(long_since_short=since_short))
        if not result.batch:
            now = min(inputs[i].since for i in left)
            continue
        batch = [there[i] for i in result.batch]
        batches.append((now, there, result, batch))
        ran = [inputs[i] for i in batch]
        since_short, now = long_since_short(since_short, ran, limits, passes_over=result.passes_over), now + 0.02
        left = [i for i in left if i not in batch]
    return batches


@given(arrivals(), limits_strategy)
def test_each_input_runs_once_within_the_limits(inputs: list[WaitingInput], limits: Limits) -> None:
    """No input is lost or doubled, and no batch exceeds the maximum of inputs, or of tokens unless it has one input."""
    batches = run(inputs, limits)
    assert sorted(i for *_, batch in batches for i in batch) == list(range(len(inputs)))
    for *_, batch in batches:
        lengths = [inputs[i].tokens for i in batch]
        cost = sum(lengths) if limits.packed else max(lengths) * len(lengths)
        assert len(batch) <= limits.max_size
        assert len(batch) == 1 or cost <= limits.max_tokens


@given(arrivals(), limits_strategy)
def test_an_input_past_the_age_bound_is_passed_over_at_most_once(inputs: list[WaitingInput], limits: Limits) -> None:
    """Of two batches in a row, one has the oldest long input that waited for the bound, and one such a short one.

    In overload, padded short inputs wait for more than one batch: they are rare.
    """
    for (now, there, _, batch), (_, _, _, following) in pairwise(run(inputs, limits)):
        is_overloaded = any(now + 0.02 - inputs[i].since >= OVERLOADED_S for i in there if is_long(inputs[i], limits))
        for kind in (True,) if is_overloaded and not limits.packed else (True, False):
            overdue = [i for i in there if now - inputs[i].since >= limits.age_bound_s]
            ages = [inputs[i].since for i in overdue if is_long(inputs[i], limits) is kind]
            if ages:
                in_two = [i for i in (*batch, *following) if is_long(inputs[i], limits) is kind]
                assert min(ages) in [inputs[i].since for i in in_two]


@given(arrivals(), limits_strategy)
def test_packed_short_inputs_keep_their_order(inputs: list[WaitingInput], limits: Limits) -> None:
    """A short input never runs before another one that is older."""
    order = [i for *_, batch in run(inputs, limits._replace(packed=True)) for i in batch]
    ages = [inputs[i].since for i in order if not is_long(inputs[i], limits)]
    assert ages == sorted(ages)


@given(arrivals(), limits_strategy)
def test_within_the_bound_no_short_input_waits_for_a_batch_of_long_ones(
    inputs: list[WaitingInput], limits: Limits
) -> None:
    """While no long input has waited for the age bound, a batch has a short input if one waits."""
    for now, there, _, batch in run(inputs, limits):
        longs = [i for i in there if is_long(inputs[i], limits)]
        if len(longs) < len(there) and not any(now - inputs[i].since >= limits.age_bound_s for i in longs):
            assert any(not is_long(inputs[i], limits) for i in batch)


@pytest.mark.parametrize("packed", [True, False])
def test_a_short_input_runs_without_the_long_ones_that_came_before(packed: bool) -> None:
    """Its batch takes 6 ms instead of 86."""
    waiting = [*long(0.0), short(0.05)]
    result = plan(waiting, LIMITS._replace(packed=packed), 0.1)
    assert (result.batch, result.passes_over, result.full) == ((4,), True, False)


def test_past_the_bound_the_oldest_long_input_goes_next_and_short_ones_with_it() -> None:
    """It is passed over once more, and then leads; short inputs go before the others of its entry."""
    waiting = [*long(0.0), short(0.25), short(0.26)]
    assert plan(waiting, LIMITS, 0.3).batch == (4, 5)
    result = plan(waiting, LIMITS, 0.3, SchedulerState(long_since_short=0.0))
    assert (result.batch, result.passes_over) == ((0, 4, 5, 1), False)


def test_where_a_batch_costs_much_whatever_is_in_it_long_inputs_fill_that_of_short_ones() -> None:
    """A separate batch would take hardly less; before any costs are known, nothing is gained for certain."""
    waiting = [*long(0.0), short(0.05)]
    for costs in (Costs(0.1, 0.001), Costs(0.1, 0.0), None):
        assert plan(waiting, LIMITS._replace(costs=costs), 0.1).batch == (4, 0, 1)


def test_in_overload_throughput_counts() -> None:
    """Once long inputs have waited for seconds, a further batch has to be cheaper than before."""
    waiting = [*long(0.0), short(OVERLOADED_S)]
    limits = LIMITS._replace(costs=Costs(0.02, 0.001))
    assert plan([*long(0.0), short(0.05)], limits, 0.1).batch == (4,)
    assert plan(waiting, limits, OVERLOADED_S).batch == (4, 0, 1)


def test_many_short_texts_of_one_entry_are_long_too() -> None:
    """A request of half a batch, by number, lets single inputs go first."""
    many = [WaitingInput(1, 0.0, LATER, entry_inputs=4, entry_tokens=4)] * 4
    assert all(is_long(each, LIMITS) for each in many)
    assert not any(is_long(each._replace(entry_inputs=3), LIMITS) for each in many)
    assert not is_long(many[0], LIMITS._replace(min_long_tokens=None))


def test_bulk_keeps_the_order_of_arrival() -> None:
    """Its share and its bounds are those of the lane."""
    bulk = [each._replace(bulk=True) for each in [*long(0.0), short(0.05)]]
    assert plan(bulk, LIMITS, 0.1).batch == (0, 1)


@pytest.mark.parametrize("packed", [True, False])
def test_a_batch_of_bulk_or_of_a_suspect_does_not_forget_that_long_inputs_wait(packed: bool) -> None:
    """Otherwise batches of short ones and of bulk would alternate, and the long ones would starve."""
    limits = LIMITS._replace(packed=packed)
    bulk, suspect = short(0.0)._replace(bulk=True), short(0.0)._replace(attempts=1, entry="suspect")
    assert 4 in plan([*long(0.0), bulk], limits, 10.0, SchedulerState(bulk_owed=1, long_since_short=0.0)).batch
    for other in (bulk, suspect):
        assert long_since_short(0.0, [other], limits, passes_over=False) == 0.0
    assert plan([*long(5.0), suspect], limits, 10.0, SchedulerState(long_since_short=0.0)).batch == (4,)
    assert long_since_short(0.0, [*long(0.0), bulk], limits, passes_over=False) == sum(e.tokens for e in long(0.0))


@pytest.mark.parametrize(("since_short", "goes_first"), [(0.0, "long"), (100.0, "long"), (200.0, "short")])
def test_in_overload_padded_batches_of_short_inputs_are_rare(since_short: float, goes_first: str) -> None:
    """Their fixed part, here of ten tokens, is at most a thirteenth; but no more runs than within the age bound."""
    limits = LIMITS._replace(packed=False, costs=Costs(0.01, 0.001))
    state, waiting = SchedulerState(long_since_short=since_short), [*long(0.0), short(9.9)]
    assert (plan(waiting, limits, 10.0, state).batch == (4,)) is (goes_first == "short")
    within = limits._replace(age_bound_s=0.05)
    assert (plan(waiting, within, 10.0, state).batch == (4,)) is (since_short >= 50.0)
