"""When an engine waits for more: properties of the decision, what is learnt for it, and the plan that it is part of."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.batching import Limits, Waiting, plan
from gpuworker.costs import Costs
from gpuworker.returns import EDGES_S
from gpuworker.waits import Forming, Outlook, Pace

ENDED = 100.0
BACK_AT_S = 0.002


def risks_of(back_at_s: float, most: float = 20.0) -> tuple[float, ...]:
    """Returns the risks of inputs that all come back at one time."""
    return tuple(most if edge_s > back_at_s else 0.0 for edge_s in EDGES_S)


ECHO = Outlook(Costs(0.020, 0.0001), ENDED, 8, 8, (20.0,), risks_of(BACK_AT_S))
"""A batch has just answered eight clients that ask again at once, on a device whose batches take 20 ms and more."""

parts = st.floats(0.0, 0.1)
lengths = st.floats(1.0, 512.0)
risk_steps = st.dictionaries(st.integers(0, len(EDGES_S) - 2), st.floats(0.0, 20.0), max_size=4)


@st.composite
def outlooks(draw: st.DrawFn) -> Outlook:
    """Whatever may have been learnt."""
    answered = draw(st.integers(1, 64))
    steps = draw(risk_steps)
    risks = [0.0, *accumulate(steps.get(at, 0.0) for at in range(len(EDGES_S) - 1))]
    each = tuple(draw(st.lists(lengths, min_size=1, max_size=8)))
    costs = Costs(draw(parts), draw(st.sampled_from([0.0, 0.000002, 0.0001])))
    return Outlook(costs, ENDED, answered, draw(st.integers(0, answered)), each, tuple(risks))


formings = st.builds(
    Forming,
    number=st.integers(1, 64),
    each=lengths,
    since=st.floats(ENDED - 0.1, ENDED),
    packed=st.booleans(),
)
nows = st.floats(ENDED, ENDED + 0.05) | st.just(ENDED)


@given(outlooks(), formings, nows)
def test_nobody_waits_longer_than_a_batch_can_save(outlook: Outlook, forming: Forming, now: float) -> None:
    """A wait ends at most the fixed part of a batch after it could have begun, and never in the past."""
    until = outlook.until(forming, now)
    assert until >= now
    assert until == now or until <= max(forming.since, outlook.ended) + outlook.costs.fixed_s


@given(outlooks(), formings, nows)
def test_without_a_fixed_part_nobody_waits(outlook: Outlook, forming: Forming, now: float) -> None:
    """Where two batches take no longer than one of both, there is nothing to gain."""
    free = replace(outlook, costs=Costs(0.0, outlook.costs.token_s))
    assert free.until(forming, now) == now


@given(outlooks(), formings, nows)
def test_nobody_waits_for_nobody(outlook: Outlook, forming: Forming, now: float) -> None:
    """When all that were answered have come back, or none ever has, the batch goes."""
    assert replace(outlook, out=0).until(forming, now) == now
    assert replace(outlook, risks=tuple(0.0 for _ in EDGES_S)).until(forming, now) == now


def test_what_comes_back_soon_is_waited_for() -> None:
    """With 20 ms to save, 2 ms are well spent; until shortly after the inputs are due."""
    until = ECHO.until(Forming(8, 20.0, ENDED - 0.01), ENDED)
    assert ENDED + BACK_AT_S < until < ENDED + 2 * BACK_AT_S


@pytest.mark.parametrize(
    "outlook",
    [
        replace(ECHO, risks=risks_of(0.030)),
        replace(ECHO, costs=Costs(0.001, 0.0001)),
        replace(ECHO, risks=risks_of(BACK_AT_S, 0.5)),
        replace(ECHO, each=(500.0,)),
    ],
    ids=["too late", "a cheap batch", "most stay away", "much padding"],
)
def test_what_is_not_worth_it_is_not_waited_for(outlook: Outlook) -> None:
    """Not when it comes later than it saves, saves less than it takes, mostly does not come, or costs more padding."""
    assert outlook.until(Forming(8, 20.0, ENDED - 0.01), ENDED) == ENDED


def test_packed_batches_have_no_padding_to_fear() -> None:
    """Long inputs among short ones are waited for where nothing is padded."""
    outlook = replace(ECHO, each=(250.0,))
    assert outlook.until(Forming(8, 20.0, ENDED - 0.01, packed=True), ENDED) > ENDED


# -- the plan ----------------------------------------------------------------------------------------------------------

NEVER = 1e9
LIMITS = Limits(64, 16_384, outlook=ECHO)


def waiting(number: int, deadline: float = NEVER) -> list[Waiting]:
    """Returns inputs of 20 tokens that came while the last batch ran."""
    return [Waiting(20, ENDED - 0.01, deadline) for _ in range(number)]


def test_a_plan_waits_as_the_outlook_says() -> None:
    """No batch, and the time to look again; then everything that is there."""
    made = plan(waiting(8), LIMITS, ENDED)
    assert made.batch == ()
    assert made.wake_at == ECHO.until(Forming(8, 20.0, ENDED - 0.01), ENDED)
    back = replace(LIMITS, outlook=replace(ECHO, out=0))
    assert len(plan(waiting(16), back, ENDED + BACK_AT_S).batch) == 16


@pytest.mark.parametrize(
    "limits", [Limits(8, 16_384, outlook=ECHO), Limits(12, 16_384, outlook=ECHO), Limits(64, 200, outlook=ECHO)]
)
def test_a_batch_that_is_full_or_would_overflow_goes_at_once(limits: Limits) -> None:
    """Eight of at most eight; and eight that the other eight would not fit beside, in number or in tokens."""
    assert len(plan(waiting(8), limits, ENDED).batch) == 8


@given(st.integers(1, 40), st.floats(-0.01, 0.2), outlooks(), st.floats(0.0, 0.05), st.booleans())
def test_a_wait_leaves_time_to_run_before_a_deadline(
    number: int, left_s: float, outlook: Outlook, reserve_s: float, packed: bool
) -> None:
    """Never past the oldest deadline less the time that the batch is expected to take."""
    limits = replace(LIMITS, outlook=outlook, reserve_s=reserve_s, packed=packed)
    deadline = ENDED + left_s
    made = plan([*waiting(number), Waiting(20, ENDED - 0.01, deadline)], limits, ENDED)
    if made.wake_at is not None:
        assert made.wake_at > ENDED
        batch_s = outlook.costs.seconds(20 * (number + (deadline > ENDED)))
        assert made.wake_at <= deadline - max(batch_s, reserve_s) or deadline <= ENDED


# -- what is learnt ----------------------------------------------------------------------------------------------------


def two_groups(pace: Pace, rounds: int, costs: Costs = ECHO.costs) -> float:
    """Plays two groups of eight clients that take turns, each back 2 ms after its answers; returns the time then."""
    now = 0.0
    for round_ in range(rounds):
        tokens = 8 * (10 + 10 * (round_ % 4))
        now += costs.seconds(tokens)
        pace.ran(now, costs.seconds(tokens), 8, tokens, 8)
        pace.arrived(now + BACK_AT_S, 8)
    return now


def test_before_the_first_batch_there_is_nothing_to_wait_for() -> None:
    """No outlook."""
    pace = Pace()
    pace.arrived(1.0, 3)
    assert pace.outlook is None


def test_two_groups_of_clients_are_joined() -> None:
    """After some rounds the engine waits for the other group, to run both as one batch."""
    pace = Pace()
    now = two_groups(pace, 20) + 0.030
    pace.ran(now, 0.030, 8, 160, 8)
    assert pace.outlook is not None
    until = pace.outlook.until(Forming(8, 20.0, now - 0.02), now)
    assert now + BACK_AT_S < until < now + 2 * BACK_AT_S
    pace.arrived(until, 8)
    assert pace.outlook.until(Forming(16, 20.0, now - 0.02), until) == until


def test_on_a_device_without_a_fixed_part_they_are_left_alone() -> None:
    """The same clients, where a batch takes its tokens' time and no more."""
    pace = Pace()
    now = two_groups(pace, 20, Costs(0.0, 0.0002))
    assert pace.outlook is not None
    assert pace.outlook.until(Forming(8, 20.0, now - 0.02), now) == now
