"""What a worker reports of its last seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.recent_activity import WINDOW_S, RecentActivity
from shared.activity import Activity, bucket_of


def test_answers_errors_and_batches_are_counted() -> None:
    """A request of several entries counts once, its entries each have a latency."""
    activity = RecentActivity(100.0)
    activity.record_answer(101.0, 12.0, num_requests=1)
    activity.record_answer(101.5, 12.0, num_requests=0)
    activity.record_answer(102.5, 300.0, num_requests=1)
    activity.record_error(102.5)
    activity.record_batch(102.0, 3)
    activity.record_batch(103.0, 5)
    latencies = ((bucket_of(12.0), 2), (bucket_of(300.0), 1))
    assert activity.summarize(104.0) == Activity(4.0, 2, 1, 2, 8, latencies)


@given(st.lists(st.floats(0, 200), max_size=50), st.floats(0, 200))
def test_only_the_window_counts(times: list[float], now: float) -> None:
    """At any time the report has exactly the batches of its window, which is at most WINDOW_S long."""
    activity = RecentActivity(0.0)
    for at in sorted(each for each in times if each <= now):
        activity.record_batch(at, 1)
    report = activity.summarize(now)
    assert report.window_s <= WINDOW_S
    inside = [each for each in times if each <= now and int(each) > int(now) - WINDOW_S]
    assert report.batches == len(inside)


def test_an_idle_worker_reports_its_window() -> None:
    """Without any answer the window still grows, so that rates are 0 and not unknown."""
    assert RecentActivity(7.0).summarize(9.0) == Activity(2.0)
