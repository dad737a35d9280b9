"""The recent load of interactive inputs, and the rate that it leaves for bulk."""

from __future__ import annotations

import pytest

from gpuworker.policy.load_average import MIN_SHARE, LoadAverage


def load_of(tokens_per_s: int, seconds: int) -> LoadAverage:
    """Returns the load after this many interactive tokens in each of some seconds."""
    load = LoadAverage()
    for second in range(seconds):
        load.advance(float(second))
        load.record(tokens_per_s)
    load.advance(float(seconds))
    return load


@pytest.mark.parametrize(
    ("tokens_per_s", "share", "left"),
    [(0, 0.1, 1_000), (300, 0.1, 700), (950, 0.1, 100), (1_000, 0.5, 500), (1_000, 0.0, 1_000 * MIN_SHARE)],
)
def test_bulk_has_the_rest_or_its_share(tokens_per_s: int, share: float, left: float) -> None:
    """Of a thousand tokens a second, bulk has the rest of the interactive load, at least its share."""
    assert load_of(tokens_per_s, 30).bulk_rate(1_000.0, share) == pytest.approx(left, rel=0.01)


def test_old_load_is_forgotten() -> None:
    """After half a minute without interactive requests bulk has all; without a rate the rest is unknown."""
    load = load_of(900, 30)
    load.advance(60.0)
    assert load.bulk_rate(1_000.0, 0.1) == pytest.approx(1_000.0, rel=0.01)
    assert load.bulk_rate(0.0, 0.1) == 0.0
