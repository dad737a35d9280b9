"""What several workers did in the last seconds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.activity import MAX_BUCKET, NO_ACTIVITY, Activity, bucket_of, summarize


@given(st.lists(st.floats(0.5, 300_000), min_size=1, max_size=50), st.integers(1, 4))
def test_percentiles_are_within_a_tenth(latencies_ms: list[float], workers: int) -> None:
    """However latencies are spread over workers, p50 and p99 are those of all, within 10 %."""
    parts = [latencies_ms[number::workers] for number in range(workers)]
    activities = [Activity(1.0, latencies=tuple((bucket_of(each), 1) for each in part)) for part in parts]
    summary = summarize(activities)
    ordered = sorted(latencies_ms)
    for share, found in ((0.50, summary.p50_ms), (0.99, summary.p99_ms)):
        assert found == pytest.approx(ordered[math.ceil(share * len(ordered)) - 1], rel=0.1)


def test_rates_count_the_time_that_each_worker_ran() -> None:
    """A worker that has just started counts with its own window; the size of a batch is the mean of all batches."""
    long, short = Activity(30.0, requests=300, batches=10, inputs=20), Activity(2.0, requests=10, batches=10, inputs=80)
    summary = summarize([long, short, NO_ACTIVITY])
    assert summary.requests_per_s == 300 / 30 + 10 / 2
    assert summary.inputs_per_s == 20 / 30 + 80 / 2
    assert summary.batch_size == 5


def test_nothing_done_has_no_latency_and_no_batch() -> None:
    """Workers of older versions, which report nothing, and idle ones have rates of 0, and no latency."""
    summary = summarize([NO_ACTIVITY, Activity(3.0)])
    assert (summary.requests_per_s, summary.batch_size, summary.p50_ms, summary.p99_ms) == (0.0, None, None, None)


@pytest.mark.parametrize("window_s", [math.nan, math.inf, -1.0])
def test_impossible_reports_are_left_out(window_s: float) -> None:
    """A report without a possible window, or with impossible buckets, is no reason to fail."""
    assert summarize([Activity(window_s, requests=5)]).requests_per_s == 0
    assert summarize([Activity(1.0, latencies=((10**9, 1), (-5, 1), (3, -7)))]).p99_ms is not None
    assert bucket_of(10**12) == MAX_BUCKET
    assert bucket_of(-1) == 0
