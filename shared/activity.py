"""What workers did in the last seconds: they report it with their heartbeats, and readers add it up. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MIN_LATENCY_MS = 0.5
BUCKETS_PER_DOUBLING = 4
"""A latency is known within 9 %: half of the width of its bucket."""

MAX_BUCKET = 80
"""The bucket of 524 s and all longer latencies; the longest deadline is 300 s."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What a worker did in the last `window_s`.

    Attributes:
        requests: requests whose first entry it answered, with a result or an error; jobs are not counted.
        errors: entries that it answered with an error which is not the client's fault.
        batches: that its model ran; `inputs` are the sum of their sizes.
        latencies: of the entries of these requests, from the submission to the answer: pairs of a bucket (see
            `bucket_of`) and a number of entries; one of coalesced requests counts for each of them.
    """

    window_s: float = 0.0
    requests: int = 0
    errors: int = 0
    batches: int = 0
    inputs: int = 0
    latencies: tuple[tuple[int, int], ...] = ()


NO_ACTIVITY = Activity()


@dataclass(frozen=True, slots=True)
class ActivitySummary:
    """What several workers did, together. `batch_size` is a mean; it and latencies are None if there were none."""

    requests: int
    requests_per_s: float
    inputs_per_s: float
    batch_size: float | None
    p50_ms: float | None
    p99_ms: float | None
    errors: int
    window_s: float


def bucket_of(latency_ms: float) -> int:
    """Returns the bucket of a latency: bucket 0 ends at MIN_LATENCY_MS, each later one 19 % above the one before."""
    ratio = max(latency_ms, MIN_LATENCY_MS) / MIN_LATENCY_MS
    return min(MAX_BUCKET, math.ceil(BUCKETS_PER_DOUBLING * math.log2(ratio)))


def summarize(activities: Sequence[Activity]) -> ActivitySummary:
    """Returns what all workers did together. The windows of workers that have just started are shorter."""
    used = [each for each in activities if math.isfinite(each.window_s) and each.window_s > 0]
    batches, inputs = sum(each.batches for each in used), sum(each.inputs for each in used)
    latencies = _merge(each.latencies for each in used)
    return ActivitySummary(
        requests=sum(each.requests for each in used),
        requests_per_s=sum(each.requests / each.window_s for each in used),
        inputs_per_s=sum(each.inputs / each.window_s for each in used),
        batch_size=inputs / batches if batches else None,
        p50_ms=_percentile(latencies, 0.50),
        p99_ms=_percentile(latencies, 0.99),
        errors=sum(each.errors for each in used),
        window_s=max((each.window_s for each in used), default=0.0),
    )


def add_up(parts: Sequence[Activity]) -> Activity:
    """Returns what one worker did, of which each part is for another shard."""
    return Activity(
        max(each.window_s for each in parts),
        sum(each.requests for each in parts),
        sum(each.errors for each in parts),
        sum(each.batches for each in parts),
        sum(each.inputs for each in parts),
        tuple(sorted(_merge(each.latencies for each in parts).items())),
    )


def _merge(parts: Iterable[tuple[tuple[int, int], ...]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for part in parts:
        for bucket, count in part:
            total[min(max(bucket, 0), MAX_BUCKET)] += max(count, 0)
    return total


def _percentile(latencies: dict[int, int], share: float) -> float | None:
    """Returns the middle of the bucket in which the latency lies that `share` of all do not exceed, ms."""
    needed = share * sum(latencies.values())
    for bucket in sorted(latencies):
        needed -= latencies[bucket]
        if needed <= 0:
            return float(MIN_LATENCY_MS * 2 ** ((bucket - 0.5) / BUCKETS_PER_DOUBLING))
    return None
