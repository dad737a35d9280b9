"""What an engine learns of its batches, and the limits that follow from it."""

from __future__ import annotations

import pytest

from gpuworker.policy.adaptive_limits import AdaptiveLimits, max_runner_tokens
from gpuworker.policy.batch_wait import PendingBatch, WaitForecast
from gpuworker.policy.costs import Costs
from gpuworker.policy.limits import OVERHEAD_TOKENS, Limits

COSTS = Costs(0.020, 0.0001)
RETURN_S = 0.002
ADAPTIVE = Limits(64, 16_384, wait_s=None)
EIGHT = PendingBatch(8, 20.0)


def forecast_of(limits: AdaptiveLimits) -> WaitForecast:
    """Returns which inputs are expected; fails if there is no forecast."""
    forecast = limits.limits(0, 0).forecast
    assert forecast is not None
    return forecast


def two_groups(limits: AdaptiveLimits, rounds: int, costs: Costs = COSTS) -> float:
    """Plays two groups of eight clients that take turns, each back 2 ms after its answers; returns the end time."""
    now = 0.0
    for round_ in range(rounds):
        tokens = 8 * (10 + 10 * (round_ % 4))
        now += costs.seconds(tokens)
        limits.record_batch(now, costs.seconds(tokens), 8, tokens, 8)
        limits.record_arrivals(now + RETURN_S, 8)
    return now


def test_before_the_first_batch_there_is_no_forecast() -> None:
    """Arrivals alone are not enough for one."""
    limits = AdaptiveLimits(ADAPTIVE, 1)
    limits.record_arrivals(1.0, 3)
    assert limits.limits(0, 0).forecast is None


def test_two_groups_of_clients_are_joined() -> None:
    """After some rounds the engine waits for the other group, to run both as one batch."""
    limits = AdaptiveLimits(ADAPTIVE, 1)
    now = two_groups(limits, 20) + 0.030
    limits.record_batch(now, 0.030, 8, 160, 8)
    wake_at = forecast_of(limits).wake_at(EIGHT, now)
    assert now + RETURN_S < wake_at < now + 2 * RETURN_S
    limits.record_arrivals(wake_at, 8)
    assert limits.limits(0, 0).forecast is None, "all are back"


def test_on_a_device_without_a_fixed_part_they_are_not_joined() -> None:
    """For the same clients there is no wait if a batch takes only its tokens' time."""
    limits = AdaptiveLimits(ADAPTIVE, 1)
    now = two_groups(limits, 20, Costs(0.0, 0.0002)) + 0.032
    limits.record_batch(now, 0.032, 8, 160, 8)
    assert forecast_of(limits).wake_at(EIGHT, now) == now


@pytest.mark.parametrize("wait_s", [0.0, 0.005])
def test_a_fixed_wait_learns_nothing_of_clients(wait_s: float) -> None:
    """With a fixed wait, or without one, there is no forecast, whatever runs."""
    limits = AdaptiveLimits(Limits(64, 16_384, wait_s), 1)
    two_groups(limits, 20)
    assert limits.limits(0, 0).forecast is None


def test_a_fixed_wait_learns_its_reserve_before_a_deadline() -> None:
    """About the time of a batch; without a wait it is not needed, and stays 0."""
    fixed, none = AdaptiveLimits(Limits(64, 16_384, 0.005), 1), AdaptiveLimits(Limits(64, 16_384), 1)
    for limits in (fixed, none):
        for k in range(50):
            limits.record_batch(k * 0.04, 0.04, 8, 200, 8)
    assert fixed.limits(0, 0).reserve_s == pytest.approx(0.04, rel=0.01)
    assert none.limits(0, 0).reserve_s == 0


def test_batches_are_split_unless_full_ones_are_wanted() -> None:
    """With two runners and 900 tokens in sight, a batch may have half of them; with a fixed wait, all."""
    assert [AdaptiveLimits(Limits(64, 512, wait_s), 2).limits(400, 500).max_tokens for wait_s in (0.0, None, 0.01)] == [
        450,
        450,
        512,
    ]


def test_padded_batches_reveal_their_fixed_part() -> None:
    """On a device where it is worth 200 tokens, any wait learns it; a packed batch has no padding to weigh."""
    for wait_s in (0.0, None, 0.01):
        padded, packed = (AdaptiveLimits(Limits(64, 16_384, wait_s, packed=packed), 1) for packed in (False, True))
        two_groups(padded, 20)
        two_groups(packed, 20)
        assert padded.limits(0, 0).overhead_tokens == pytest.approx(200, rel=0.05)
        assert packed.limits(0, 0).overhead_tokens == OVERHEAD_TOKENS


def test_the_overhead_is_bounded() -> None:
    """It is never less than at first, as after batches of one size, nor more than a batch may have."""
    limits, varied = AdaptiveLimits(ADAPTIVE, 1), AdaptiveLimits(ADAPTIVE, 1)
    for k in range(50):
        limits.record_batch(k * 0.04, 0.04, 8, 200, 8)
        varied.record_batch(k * 0.04, 0.04, 8, 100 if k % 2 else 3_000, 8)
    assert limits.limits(0, 0).overhead_tokens == OVERHEAD_TOKENS
    assert varied.limits(0, 0).overhead_tokens == ADAPTIVE.max_tokens


@pytest.mark.parametrize(
    ("limits", "tokens", "expected"),
    [
        (Limits(64, 512, 0.0), 255, False),
        (Limits(64, 512, 0.0), 256, True),
        (Limits(64, 16_384, 0.0), 256, True),
        (Limits(64, 512, 0.0, overhead_tokens=512), 255, False),
        (Limits(64, 512, 0.0, overhead_tokens=512), 256, True),
    ],
)
def test_small_batches_do_not_show_the_rate(limits: Limits, tokens: int, expected: bool) -> None:
    """Their fixed cost is over a ninth of their time; half of a batch is large whatever the fixed cost is worth."""
    assert AdaptiveLimits(limits, 2).is_large(tokens) is expected


def test_a_full_batch_is_bounded_by_its_number_of_inputs() -> None:
    """Its time is that of inputs as long as the longest so far; such inputs may never reach the token limit."""
    limits = AdaptiveLimits(Limits(8, 16_384, packed=True), 1)
    assert limits.full_s == 0.0
    for tokens in (4, 8, 16, 8) * 5:
        limits.record_batch(0.0, COSTS.seconds(tokens), 4, tokens, 4)
    assert limits.full_s == pytest.approx(COSTS.seconds(8 * 4), rel=0.05)
    for tokens in (4_000, 40_000):
        limits.record_batch(0.0, COSTS.seconds(tokens), 1, tokens, 1)
    assert limits.full_s == pytest.approx(COSTS.seconds(16_384), rel=0.1)


@pytest.mark.parametrize(
    ("total_tokens", "runners", "tokens"),
    [(100, 2, 256), (960, 2, 480), (3_000, 2, 512), (960, 3, 320), (600, 1, 300), (10_000, 1, 512)],
)
def test_a_batch_takes_a_runners_share(total_tokens: int, runners: int, tokens: int) -> None:
    """Half for one runner; but not too little for a batch's fixed cost, nor more than the limit."""
    assert max_runner_tokens(total_tokens, runners, Limits(64, 512, overhead_tokens=32.0)) == tokens
