"""When an engine waits for more: properties of the decision, and the plan that contains it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.batch_wait import MARGIN, PendingBatch, WaitForecast
from gpuworker.policy.batching import plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import Limits

ENDED = 100.0
BACK_S = 0.002

ECHO = WaitForecast(Costs(0.020, 0.0001), ENDED, 8, 20.0, 1.0, BACK_S)
"""A batch has just answered eight clients that return at once, on a device whose batches take 20 ms and more."""

EIGHT = PendingBatch(8, 20.0)

lengths = st.floats(1.0, 512.0)
forecasts = st.builds(
    WaitForecast,
    costs=st.builds(Costs, st.floats(0.0, 0.1), st.sampled_from([0.0, 0.000002, 0.0001])),
    ended_at=st.just(ENDED),
    outstanding=st.integers(0, 64),
    input_tokens=lengths,
    share=st.floats(0.0, 1.0),
    delay_s=st.floats(0.0, 0.1),
)
pending_batches = st.builds(PendingBatch, num_inputs=st.integers(1, 64), input_tokens=lengths, packed=st.booleans())
nows = st.floats(ENDED, ENDED + 0.05) | st.just(ENDED)


@given(forecasts, pending_batches, nows)
def test_no_wait_is_longer_than_a_batch_can_save(forecast: WaitForecast, pending: PendingBatch, now: float) -> None:
    """A wait is shorter than the fixed part of a batch, and ends soon after the outstanding inputs are due."""
    wake_at = forecast.wake_at(pending, now)
    assert wake_at >= now
    assert wake_at == now or wake_at - now < forecast.costs.fixed_s + 1e-9
    assert wake_at == now or wake_at == forecast.ended_at + MARGIN * forecast.delay_s


@given(forecasts, pending_batches)
def test_joining_saves_the_fixed_part_less_the_padding(forecast: WaitForecast, pending: PendingBatch) -> None:
    """All of it if nothing is padded, and never more."""
    saved_s = forecast.saved_s(pending)
    assert saved_s <= forecast.costs.fixed_s + 1e-9
    if pending.packed or pending.input_tokens == forecast.input_tokens:
        assert saved_s == pytest.approx(forecast.costs.fixed_s)


@given(forecasts, pending_batches, nows)
def test_without_a_fixed_part_there_is_no_wait(forecast: WaitForecast, pending: PendingBatch, now: float) -> None:
    """If two batches take no longer than the joined one, there is nothing to gain."""
    free = forecast._replace(costs=Costs(0.0, forecast.costs.token_s))
    assert free.wake_at(pending, now) == pytest.approx(now, abs=1e-9)


@given(forecasts, pending_batches, nows)
def test_there_is_no_wait_if_no_input_is_expected(forecast: WaitForecast, pending: PendingBatch, now: float) -> None:
    """If all answered inputs have come back, or none ever does, the batch goes."""
    assert forecast._replace(outstanding=0).wake_at(pending, now) == now
    assert forecast._replace(share=0.0).wake_at(pending, now) == now


def test_the_engine_waits_for_inputs_that_return_soon() -> None:
    """To save 20 ms, it waits 2 ms, until shortly after the inputs are due."""
    wake_at = ECHO.wake_at(EIGHT, ENDED)
    assert ENDED + BACK_S < wake_at < ENDED + 2 * BACK_S


@pytest.mark.parametrize(
    "forecast",
    [
        ECHO._replace(delay_s=0.030),
        ECHO._replace(costs=Costs(0.001, 0.0001)),
        ECHO._replace(share=0.4),
        ECHO._replace(input_tokens=500.0),
    ],
    ids=["too late", "a cheap batch", "most stay away", "much padding"],
)
def test_there_is_no_wait_that_does_not_pay(forecast: WaitForecast) -> None:
    """Not for inputs that come too late, save less than they take, mostly stay away, or cost more padding."""
    assert forecast.wake_at(EIGHT, ENDED) == ENDED


def test_packed_batches_cost_no_padding() -> None:
    """The engine waits for long inputs to join short ones if nothing is padded."""
    assert ECHO._replace(input_tokens=250.0).wake_at(EIGHT._replace(packed=True), ENDED) > ENDED


# -- the plan ----------------------------------------------------------------------------------------------------------

NEVER = 1e9
LIMITS = Limits(64, 16_384, wait_s=None, forecast=ECHO)


def waiting(number: int, deadline: float = NEVER) -> list[WaitingInput]:
    """Returns inputs of 20 tokens that arrived while the last batch ran."""
    return [WaitingInput(20, ENDED - 0.01, deadline) for _ in range(number)]


def test_a_plan_waits_as_forecast() -> None:
    """No batch, and the time to look again; then everything that has arrived."""
    result = plan(waiting(8), LIMITS, ENDED)
    assert result.batch == ()
    assert result.wake_at == ECHO.wake_at(EIGHT, ENDED)
    back = LIMITS._replace(forecast=ECHO._replace(outstanding=0))
    assert len(plan(waiting(16), back, ENDED + BACK_S).batch) == 16


@pytest.mark.parametrize(
    "limits", [LIMITS._replace(max_size=8), LIMITS._replace(max_size=12), LIMITS._replace(max_tokens=200)]
)
def test_a_batch_that_is_full_or_would_overflow_goes_at_once(limits: Limits) -> None:
    """Eight of at most eight; and eight that the other eight would not fit beside, in number or in tokens."""
    assert len(plan(waiting(8), limits, ENDED).batch) == 8


@given(st.integers(1, 40), st.floats(-0.01, 0.2), forecasts, st.floats(0.0, 0.05), st.booleans())
def test_a_wait_leaves_time_to_run_before_a_deadline(
    number: int, left_s: float, forecast: WaitForecast, reserve_s: float, packed: bool
) -> None:
    """It never passes the oldest deadline less the expected time of the batch."""
    limits = LIMITS._replace(forecast=forecast, reserve_s=reserve_s, packed=packed)
    deadline = ENDED + left_s
    result = plan([*waiting(number), WaitingInput(20, ENDED - 0.01, deadline)], limits, ENDED)
    if result.wake_at is not None:
        assert result.wake_at > ENDED
        batch_s = forecast.costs.seconds(20 * (number + (deadline > ENDED)))
        assert result.wake_at <= deadline - max(batch_s, reserve_s) or deadline <= ENDED
