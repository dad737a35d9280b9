"""The figures of a run: throughput, latency, batch size, padding."""

from __future__ import annotations

from dataclasses import dataclass

from bench.simulation.cluster import Outcome
from redbatch.bench.statistics import summarize_latency


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of the requests sent in a window, and of the answers in it."""

    requests: float
    failed: float
    per_s: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    batch: float
    padding: float


def figures(outcome: Outcome, warmup_s: float, until_s: float) -> Figures:
    """Returns the figures of a window (s). Rates count the answers in it, the other figures the requests sent in it."""
    sent = [each for each in outcome.requests if warmup_s <= each.sent_s < until_s]
    answered = sum(
        each.ok and each.answered_s is not None and warmup_s <= each.answered_s <= until_s for each in outcome.requests
    )
    ok_ms = sorted((each.answered_s - each.sent_s) * 1000 for each in sent if each.ok and each.answered_s is not None)
    latency = summarize_latency(ok_ms)
    batches = [each for each in outcome.batches if warmup_s <= each.ended_s <= until_s]
    padded = sum(each.padded for each in batches)
    return Figures(
        requests=len(sent),
        failed=len(sent) - len(ok_ms),
        per_s=answered / (until_s - warmup_s),
        mean_ms=latency.mean_ms,
        p50_ms=latency.percentiles_ms[50.0],
        p95_ms=latency.percentiles_ms[95.0],
        p99_ms=latency.percentiles_ms[99.0],
        batch=sum(each.size for each in batches) / max(1, len(batches)),
        padding=1 - sum(each.tokens for each in batches) / padded if padded else 0.0,
    )
