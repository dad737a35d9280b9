"""Figures computed from a request log."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbatch.bench.request_log import MAX_CODES, RequestLog
from redbatch.bench.statistics import histogram, percentile, summarize, summarize_latency

latencies_ms = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200)


def log_of(*rows: tuple[float, float, str]) -> RequestLog:
    """Returns a log of requests: when each started, its latency, and its code. Each sends 10 bytes and receives 100."""
    log = RequestLog()
    for start_s, latency_s, code in rows:
        log.add(start_s, latency_s, code, 10, 100)
    return log


@given(values=latencies_ms, percent=st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: float) -> None:
    """Percentiles are interpolated linearly between neighbours."""
    assert percentile(sorted(values), percent) == pytest.approx(float(np.percentile(values, percent)), rel=1e-9)


@given(values=latencies_ms)
def test_latency_has_minimum_mean_and_maximum(values: list[float]) -> None:
    """The minimum, the mean and the maximum equal those of numpy."""
    latency = summarize_latency(sorted(values))
    assert (latency.min_ms, latency.max_ms) == (min(values), max(values))
    assert latency.mean_ms == pytest.approx(float(np.mean(values)))


@given(values=latencies_ms)
def test_the_histogram_holds_each_value_once_in_its_bucket(values: list[float]) -> None:
    """The counts up to any bound equal the number of values up to it; bounds grow by 4.7 %."""
    buckets = histogram(values)
    assert sum(count for _, count in buckets) == len(values)
    total = 0
    for bound_ms, count in buckets:
        total += count
        assert sum(value <= bound_ms * (1 + 1e-9) for value in values) >= total
        assert sum(value <= bound_ms * (1 - 1e-9) for value in values) <= total


def test_nothing_measured_has_no_latency() -> None:
    """Figures without data are NaN and not 0, which would look very fast."""
    summary = summarize(RequestLog(), 1.0, 1.0)
    assert (summary.requests, summary.ok_per_s) == (0, 0.0)
    assert math.isnan(summary.latency.max_ms)
    assert math.isnan(summary.latency.percentiles_ms[50.0])


def test_rates_count_answers_and_latencies_count_requests() -> None:
    """An answer in the window to a request of the warmup adds to the rate; one after its end adds to the latencies."""
    log = log_of((-0.5, 1.0, "ok"), (0.5, 1.0, "ok"), (1.5, 1.0, "ok"), (-2.0, 1.0, "ok"), (2.5, 0.1, "ok"))
    summary = summarize(log, 2.0, 10.0)
    assert (summary.requests, summary.ok, summary.answers, summary.ok_per_s) == (2, 2, 2, 1.0)
    assert (summary.sent_bytes, summary.received_bytes) == (20, 200)


def test_goodput_counts_the_good_answers_of_the_throughput_that_were_not_late() -> None:
    """In a short run, an answer after the end of the window adds to neither; goodput never exceeds throughput."""
    log = log_of(
        (-0.1, 0.2, "ok"), (0.0, 0.9, "ok"), (0.5, 0.2, "ok"), (0.9, 0.3, "ok"), (0.9, 0.2, "ok"), (0.3, 0.1, "x")
    )
    summary = summarize(log, 1.0, 0.5)
    assert (summary.ok_per_s, summary.in_time / summary.window_s) == (3.0, 2.0)


def test_errors_are_counted_by_code_and_have_no_latency() -> None:
    """A fast refusal does not make the good answers look faster."""
    log = log_of((0.1, 0.2, "ok"), (0.2, 0.001, "queue_full"), (0.3, 0.001, "queue_full"), (0.4, 0.001, "no_worker"))
    summary = summarize(log, 1.0, 10.0)
    assert (summary.requests, summary.ok, summary.errors) == (4, 1, {"queue_full": 2, "no_worker": 1})
    assert summary.latency.min_ms == pytest.approx(200)
    assert summary.ok_per_s == 1.0


def test_late_counts_answers_of_any_kind_after_the_timeout() -> None:
    """An error that arrives late is late too."""
    log = log_of((0.0, 0.9, "ok"), (0.1, 1.1, "ok"), (0.2, 1.2, "deadline_exceeded"))
    assert summarize(log, 1.0, 1.0).late == 2


def test_the_seconds_add_up_to_the_whole() -> None:
    """Each request counts in the second in which it was due, each answer in the second in which it arrived."""
    random = Random(7)
    rows = [(random.uniform(0, 3.5), random.uniform(0, 0.5), random.choice(["ok", "bad"])) for _ in range(500)]
    summary = summarize(log_of(*rows), 3.5, 0.4)
    assert len(summary.seconds) == 4
    assert sum(each.sent for each in summary.seconds) == summary.requests == 500
    assert sum(each.errors for each in summary.seconds) == sum(summary.errors.values())
    assert sum(each.late for each in summary.seconds) == summary.late
    assert sum(each.answered_ok for each in summary.seconds) == pytest.approx(summary.ok_per_s * 3.5)


def test_the_number_of_codes_is_limited() -> None:
    """Codes beyond the limit count as `other`, and as errors."""
    log = log_of(*((0.0, 0.1, f"code_{i}") for i in range(MAX_CODES * 2)))
    summary = summarize(log, 1.0, 1.0)
    assert len(summary.errors) <= MAX_CODES
    assert sum(summary.errors.values()) == MAX_CODES * 2
    assert summary.errors["other"] > 1
