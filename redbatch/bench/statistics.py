"""Figures of a run, computed from its request log. Pure.

There are two views of the same window. Rates and goodput count requests that were *answered* in the window, whenever
they were sent, so that the tail of the run neither adds nor removes any. Figures of single requests (latency, errors,
late) count requests that were *due* in the window, including those answered after its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from redbatch.bench.answers import OK
from redbatch.bench.request_log import RequestLog

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
BUCKETS_PER_DECADE = 50


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of good answers, in ms; NaN if there is none."""

    min_ms: float
    mean_ms: float
    percentiles_ms: dict[float, float]
    max_ms: float


@dataclass(frozen=True, slots=True)
class SecondSummary:
    """One second of the window: the requests due in it with their outcomes, and the good answers that arrived in it."""

    second: int
    sent: int
    answered_ok: int
    errors: int
    late: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a window. `ok` counts the good answers of requests due in it.

    `in_time` counts the good answers that arrived in it and were not late: as `ok_per_s`, which it never exceeds.
    """

    window_s: float
    requests: int
    ok: int
    in_time: int
    errors: dict[str, int]
    late: int
    ok_per_s: float
    answers: int
    sent_bytes: int
    received_bytes: int
    latency: Latency
    histogram: list[tuple[float, int]]
    seconds: list[SecondSummary]


@dataclass(frozen=True, slots=True)
class WarmupSummary:
    """Requests that were due before the window, and how many of them failed with each code."""

    requests: int
    errors: dict[str, int]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns a percentile of sorted values, interpolated linearly as in numpy; NaN if there are no values."""
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summarize_latency(ordered_ms: Sequence[float]) -> Latency:
    """Returns the figures of sorted latencies."""
    if not ordered_ms:
        return Latency(math.nan, math.nan, dict.fromkeys(PERCENTILES, math.nan), math.nan)
    percentiles = {percent: percentile(ordered_ms, percent) for percent in PERCENTILES}
    return Latency(ordered_ms[0], math.fsum(ordered_ms) / len(ordered_ms), percentiles, ordered_ms[-1])


def histogram(values_ms: Sequence[float]) -> list[tuple[float, int]]:
    """Returns (upper bound, count) of each non-empty bucket; bounds grow by 4.7 %, with fifty buckets per decade."""
    counts = Counter(math.ceil(math.log10(max(value, 1e-6)) * BUCKETS_PER_DECADE) for value in values_ms)
    return [(10 ** (index / BUCKETS_PER_DECADE), counts[index]) for index in sorted(counts)]


def summarize(log: RequestLog, window_s: float, late_after_s: float) -> Summary:
    """Returns the figures of the window that starts at 0; requests before it belong to the warmup."""
    in_window = [i for i, start_s in enumerate(log.start_s) if 0 <= start_s < window_s]
    ends_s = [start_s + latency_s for start_s, latency_s in zip(log.start_s, log.latency_s, strict=True)]
    answered_rows = [i for i, end_s in enumerate(ends_s) if 0 <= end_s <= window_s]
    ok_rows = [i for i in answered_rows if log.code_index[i] == 0]
    codes = Counter(log.codes[log.code_index[i]] for i in in_window)
    ok_ms = sorted(log.latency_s[i] * 1000 for i in in_window if log.code_index[i] == 0)
    return Summary(
        window_s=window_s,
        requests=len(in_window),
        ok=codes.pop(OK, 0),
        in_time=sum(log.latency_s[i] <= late_after_s for i in ok_rows),
        errors=dict(codes.most_common()),
        late=sum(log.latency_s[i] > late_after_s for i in in_window),
        ok_per_s=len(ok_rows) / window_s,
        answers=len(answered_rows),
        sent_bytes=sum(log.sent_bytes[i] for i in answered_rows),
        received_bytes=sum(log.received_bytes[i] for i in answered_rows),
        latency=summarize_latency(ok_ms),
        histogram=histogram(ok_ms),
        seconds=_split_into_seconds(log, in_window, [ends_s[i] for i in ok_rows], window_s, late_after_s),
    )


def summarize_warmup(log: RequestLog) -> WarmupSummary:
    """Returns what became of the requests before the window."""
    codes = Counter(log.codes[log.code_index[i]] for i, start_s in enumerate(log.start_s) if start_s < 0)
    requests = codes.total()
    del codes[OK]
    return WarmupSummary(requests, dict(codes.most_common()))


def _split_into_seconds(
    log: RequestLog, in_window: Sequence[int], ok_ends_s: Sequence[float], window_s: float, late_after_s: float
) -> list[SecondSummary]:
    """Splits the window into whole seconds; the last one includes the remaining fraction."""
    last = max(0, math.ceil(window_s) - 1)
    rows: list[list[int]] = [[] for _ in range(last + 1)]
    for i in in_window:
        rows[int(log.start_s[i])].append(i)
    num_answered_ok = Counter(min(last, int(end_s)) for end_s in ok_ends_s)
    seconds: list[SecondSummary] = []
    for number, rows_of_second in enumerate(rows):
        ok_ms = sorted(log.latency_s[i] * 1000 for i in rows_of_second if log.code_index[i] == 0)
        p50_ms, p95_ms, p99_ms = (percentile(ok_ms, percent) for percent in (50.0, 95.0, 99.0))
        late = sum(log.latency_s[i] > late_after_s for i in rows_of_second)
        seconds.append(
            SecondSummary(
                number,
                len(rows_of_second),
                num_answered_ok[number],
                len(rows_of_second) - len(ok_ms),
                late,
                p50_ms,
                p95_ms,
                p99_ms,
            )
        )
    return seconds
