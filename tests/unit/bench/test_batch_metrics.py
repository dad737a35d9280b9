"""Quantiles of a histogram."""

from __future__ import annotations

import math

import pytest

from bench.batch_metrics import quantile

COUNTS = {0.001: 50.0, 0.002: 90.0, 0.004: 100.0, math.inf: 100.0}


@pytest.mark.parametrize(
    ("share", "expected"), [(0.25, 0.0005), (0.5, 0.001), (0.7, 0.0015), (0.95, 0.003), (1.0, 0.004)]
)
def test_values_lie_evenly_within_a_bucket(share: float, expected: float) -> None:
    """Quantiles are interpolated linearly, as in Prometheus."""
    assert quantile(COUNTS, share) == pytest.approx(expected)


def test_a_quantile_beyond_the_last_bound_is_the_last_bound() -> None:
    """The last bucket has no upper bound to interpolate to."""
    assert quantile({0.001: 1.0, math.inf: 10.0}, 0.9) == 0.001


def test_an_empty_histogram_has_no_values() -> None:
    """Its quantiles are 0."""
    assert quantile({}, 0.5) == 0.0
    assert quantile({0.001: 0.0, math.inf: 0.0}, 0.5) == 0.0
