"""The rate of an engine: measured under load, by the time of its batches and of the gaps between them."""

from __future__ import annotations

import pytest

from gpuworker.policy.token_rate import VALID_S, BatchLoad, TokenRate


def rate_after(rate: TokenRate, *batches: BatchLoad) -> float:
    """Returns the rate at the end of the last of these batches."""
    for batch in batches:
        rate.record(batch)
    return rate.at(batches[-1].ended_at)


def saturated(ended_at: float, run_s: float, *, cost: float = 10.0, gap_s: float = 0.0) -> BatchLoad:
    """Returns a saturated batch."""
    return BatchLoad(cost, ended_at, run_s, gap_s, is_saturated=True)


def light(ended_at: float, run_s: float, *, cost: float = 10.0, gap_s: float = 0.0) -> BatchLoad:
    """Returns a batch behind which nothing waited."""
    return BatchLoad(cost, ended_at, run_s, gap_s, is_saturated=False)


def test_light_load_gives_no_rate() -> None:
    """An engine that does all that is requested could do more."""
    assert rate_after(TokenRate(counts_gaps=True), light(10.0, 1.0), light(11.0, 1.0)) == 0.0


def test_light_load_changes_no_rate() -> None:
    """Neither its tokens nor its time count: single tiny batches after a large one took its whole time for theirs."""
    rate = TokenRate(counts_gaps=True)
    assert rate_after(rate, saturated(11.0, 1.0, cost=1_000.0)) == 1_000.0
    assert rate_after(rate, light(12.0, 0.5, cost=1.0), light(13.0, 0.5, cost=1.0)) == 1_000.0


def test_batches_side_by_side_count_for_the_time_that_they_take_together() -> None:
    """Two runners that end together have done twice as much."""
    rate = rate_after(TokenRate(counts_gaps=True), *[saturated(10.0, 1.0, cost=50.0)] * 2)
    assert rate == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize(("counts_gaps", "expected"), [(True, 10.0), (False, 20.0)])
def test_the_gap_between_batches_counts_without_a_wait(counts_gaps: bool, expected: float) -> None:
    """Batches of ten tokens and half a second, half a second apart, while more waits than runs."""
    batches = [saturated(10.0 + number, 0.5, gap_s=0.5) for number in range(100)]
    assert rate_after(TokenRate(counts_gaps=counts_gaps), *batches) == pytest.approx(expected, rel=0.01)


def test_idle_time_does_not_count() -> None:
    """Every other batch leaves nothing waiting: before the next one the engine had no more to do."""
    batches = [(saturated if number % 2 else light)(10.0 + number, 0.5, gap_s=0.5) for number in range(100)]
    assert rate_after(TokenRate(counts_gaps=True), *batches) == pytest.approx(20.0, rel=0.01)


def test_a_gap_in_which_another_runner_was_busy_does_not_count_again() -> None:
    """A runner that was idle for 3 s ends half a second after the other's batch of one second."""
    rate = rate_after(TokenRate(counts_gaps=True), saturated(10.0, 1.0), saturated(10.5, 0.5, gap_s=3.0))
    assert rate == pytest.approx((0.9 * 10 + 10) / (0.9 * 1.0 + 0.5))


def test_a_rate_holds_for_some_time() -> None:
    """Then it is unknown, and the next saturated batch alone gives it: what made it low may be over."""
    rate = TokenRate(counts_gaps=True)
    assert rate_after(rate, saturated(10.0, 1.0, cost=7.0)) == 7.0
    assert rate.at(10.0 + VALID_S) == 7.0
    assert rate.at(10.1 + VALID_S) == 0.0
    assert rate_after(rate, light(11.0 + VALID_S, 1.0)) == 0.0
    assert rate_after(rate, saturated(12.0 + VALID_S, 1.0, cost=700.0)) == 700.0
