"""What the records of a run amount to. Pure.

Two views of one window. Rates count what was *answered* in it, whenever it was sent, so the tail of the run neither
adds nor takes away. Everything about single requests (latency, errors, late) counts those that were *to be sent* in it,
also when their answer came after its end.
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
    """Latencies of the good answers, in ms; NaN when there was none."""

    min_ms: float
    mean_ms: float
    percentiles_ms: dict[float, float]
    max_ms: float


@dataclass(frozen=True, slots=True)
class SecondSummary:
    """One second of the window: what was to be sent in it and became of that, and the answers that came in it."""

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
    """The figures of a window. `ok` counts good answers, `in_time` those of them that were not late."""

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


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns a percentile of sorted values, interpolated between neighbours as numpy does; NaN when there are none."""
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
    """Returns (upper bound, count) of each bucket that is not empty; bounds grow by 4.7 %, fifty to a decade."""
    counts = Counter(math.ceil(math.log10(max(value, 1e-6)) * BUCKETS_PER_DECADE) for value in values_ms)
    return [(10 ** (index / BUCKETS_PER_DECADE), counts[index]) for index in sorted(counts)]


def summarize(record: RequestLog, window_s: float, late_after_s: float) -> Summary:
    """Returns the figures of the window that begins at 0; what was sent before it was warmup."""
    mine = [i for i, began_s in enumerate(record.began_s) if 0 <= began_s < window_s]
    ended = [began_s + took_s for began_s, took_s in zip(record.began_s, record.took_s, strict=True)]
    answered = [i for i, ended_s in enumerate(ended) if 0 <= ended_s <= window_s]
    answered_ok = sum(record.code[i] == 0 for i in answered)
    codes = Counter(record.codes[record.code[i]] for i in mine)
    ok_ms = sorted(record.took_s[i] * 1000 for i in mine if record.code[i] == 0)
    return Summary(
        window_s=window_s,
        requests=len(mine),
        ok=codes.pop(OK, 0),
        in_time=sum(took_ms <= late_after_s * 1000 for took_ms in ok_ms),
        errors=dict(codes.most_common()),
        late=sum(record.took_s[i] > late_after_s for i in mine),
        ok_per_s=answered_ok / window_s,
        answers=len(answered),
        sent_bytes=sum(record.sent_bytes[i] for i in answered),
        received_bytes=sum(record.received_bytes[i] for i in answered),
        latency=summarize_latency(ok_ms),
        histogram=histogram(ok_ms),
        seconds=_split_into_seconds(
            record, mine, [ended[i] for i in answered if record.code[i] == 0], window_s, late_after_s
        ),
    )


def _split_into_seconds(
    record: RequestLog, mine: Sequence[int], ended_ok_s: Sequence[float], window_s: float, late_after_s: float
) -> list[SecondSummary]:
    """Cuts the window into whole seconds; what is left at its end belongs to the last one."""
    last = max(0, math.ceil(window_s) - 1)
    rows: list[list[int]] = [[] for _ in range(last + 1)]
    for i in mine:
        rows[int(record.began_s[i])].append(i)
    answered = Counter(min(last, int(ended_s)) for ended_s in ended_ok_s)
    seconds: list[SecondSummary] = []
    for number, row in enumerate(rows):
        ok_ms = sorted(record.took_s[i] * 1000 for i in row if record.code[i] == 0)
        p50_ms, p95_ms, p99_ms = (percentile(ok_ms, percent) for percent in (50.0, 95.0, 99.0))
        late = sum(record.took_s[i] > late_after_s for i in row)
        seconds.append(
            SecondSummary(number, len(row), answered[number], len(row) - len(ok_ms), late, p50_ms, p95_ms, p99_ms)
        )
    return seconds
