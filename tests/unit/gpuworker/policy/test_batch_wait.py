"""When an engine waits for more: properties of the decision, and the plan that it is part of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batching import Limits, Waiting, plan
from gpuworker.policy.costs import Costs
from gpuworker.policy.batch_wait import MARGIN, Forming, Outlook

ENDED = 100.0
BACK_S = 0.002

ECHO = Outlook(Costs(0.020, 0.0001), ENDED, 8, 20.0, 1.0, BACK_S)
"""A batch has just answered eight clients that ask again at once, on a device whose batches take 20 ms and more."""

EIGHT = Forming(8, 20.0)

lengths = st.floats(1.0, 512.0)
outlooks = st.builds(
    Outlook,
    costs=st.builds(Costs, st.floats(0.0, 0.1), st.sampled_from([0.0, 0.000002, 0.0001])),
    ended=st.just(ENDED),
    out=st.integers(0, 64),
    each=lengths,
    share=st.floats(0.0, 1.0),
    delay_s=st.floats(0.0, 0.1),
)
formings = st.builds(Forming, number=st.integers(1, 64), each=lengths, packed=st.booleans())
nows = st.floats(ENDED, ENDED + 0.05) | st.just(ENDED)


@given(outlooks, formings, nows)
def test_nobody_waits_longer_than_a_batch_can_save(outlook: Outlook, forming: Forming, now: float) -> None:
    """A wait is shorter than the fixed part of a batch, ends soon after those are due that are out, and has an end."""
    until = outlook.until(forming, now)
    assert until >= now
    assert until == now or until - now < outlook.costs.fixed_s + 1e-9
    assert until == now or until == outlook.ended + MARGIN * outlook.delay_s


@given(outlooks, formings)
def test_joining_saves_the_fixed_part_less_what_padding_it_takes(outlook: Outlook, forming: Forming) -> None:
    """All of it where nothing is padded, and never more."""
    saved_s = outlook.saved_s(forming)
    assert saved_s <= outlook.costs.fixed_s + 1e-9
    if forming.packed or forming.each == outlook.each:
        assert saved_s == pytest.approx(outlook.costs.fixed_s)


@given(outlooks, formings, nows)
def test_without_a_fixed_part_nobody_waits(outlook: Outlook, forming: Forming, now: float) -> None:
    """Where two batches take no longer than one of both, there is nothing to gain."""
    free = outlook._replace(costs=Costs(0.0, outlook.costs.token_s))
    assert free.until(forming, now) == pytest.approx(now, abs=1e-9)


@given(outlooks, formings, nows)
def test_nobody_waits_for_nobody(outlook: Outlook, forming: Forming, now: float) -> None:
    """When all that were answered have come back, or none ever does, the batch goes."""
    assert outlook._replace(out=0).until(forming, now) == now
    assert outlook._replace(share=0.0).until(forming, now) == now


def test_what_comes_back_soon_is_waited_for() -> None:
    """With 20 ms to save, 2 ms are well spent; until shortly after the inputs are due."""
    until = ECHO.until(EIGHT, ENDED)
    assert ENDED + BACK_S < until < ENDED + 2 * BACK_S


@pytest.mark.parametrize(
    "outlook",
    [
        ECHO._replace(delay_s=0.030),
        ECHO._replace(costs=Costs(0.001, 0.0001)),
        ECHO._replace(share=0.4),
        ECHO._replace(each=500.0),
    ],
    ids=["too late", "a cheap batch", "most stay away", "much padding"],
)
def test_what_is_not_worth_it_is_not_waited_for(outlook: Outlook) -> None:
    """Not when it comes later than it saves, saves less than it takes, mostly does not come, or costs more padding."""
    assert outlook.until(EIGHT, ENDED) == ENDED


def test_packed_batches_have_no_padding_to_fear() -> None:
    """Long inputs among short ones are waited for where nothing is padded."""
    assert ECHO._replace(each=250.0).until(EIGHT._replace(packed=True), ENDED) > ENDED


# -- the plan ----------------------------------------------------------------------------------------------------------

NEVER = 1e9
LIMITS = Limits(64, 16_384, wait_s=None, outlook=ECHO)


def waiting(number: int, deadline: float = NEVER) -> list[Waiting]:
    """Returns inputs of 20 tokens that came while the last batch ran."""
    return [Waiting(20, ENDED - 0.01, deadline) for _ in range(number)]


def test_a_plan_waits_as_the_outlook_says() -> None:
    """No batch, and the time to look again; then everything that is there."""
    made = plan(waiting(8), LIMITS, ENDED)
    assert made.batch == ()
    assert made.wake_at == ECHO.until(EIGHT, ENDED)
    back = LIMITS._replace(outlook=ECHO._replace(out=0))
    assert len(plan(waiting(16), back, ENDED + BACK_S).batch) == 16


@pytest.mark.parametrize(
    "limits", [LIMITS._replace(max_size=8), LIMITS._replace(max_size=12), LIMITS._replace(max_tokens=200)]
)
def test_a_batch_that_is_full_or_would_overflow_goes_at_once(limits: Limits) -> None:
    """Eight of at most eight; and eight that the other eight would not fit beside, in number or in tokens."""
    assert len(plan(waiting(8), limits, ENDED).batch) == 8


@given(st.integers(1, 40), st.floats(-0.01, 0.2), outlooks, st.floats(0.0, 0.05), st.booleans())
def test_a_wait_leaves_time_to_run_before_a_deadline(
    number: int, left_s: float, outlook: Outlook, reserve_s: float, packed: bool
) -> None:
    """Never past the oldest deadline less the time that the batch is expected to take."""
    limits = LIMITS._replace(outlook=outlook, reserve_s=reserve_s, packed=packed)
    deadline = ENDED + left_s
    made = plan([*waiting(number), Waiting(20, ENDED - 0.01, deadline)], limits, ENDED)
    if made.wake_at is not None:
        assert made.wake_at > ENDED
        batch_s = outlook.costs.seconds(20 * (number + (deadline > ENDED)))
        assert made.wake_at <= deadline - max(batch_s, reserve_s) or deadline <= ENDED
