"""Loads and results as the tests of the policy write them, and servers that are a formula."""

from __future__ import annotations

import math

from redbatch.tune.measurement import Measurement, TrialResult, trial_result


def measurement(clients: int, per_s: float, p95_ms: float, errors: int = 0) -> Measurement:
    """A load with these figures."""
    return Measurement(clients, per_s, p95_ms / 2, p95_ms, p95_ms, answers=1_000, errors=errors)


def batching_server(clients: int, base_ms: float, item_ms: float, size: int) -> Measurement:
    """A server that runs its clients in batches, one after the other: so many answers, after such a time."""
    batch_ms = base_ms + item_ms * (min(clients, size) - 1)
    latency_ms = batch_ms * math.ceil(clients / size)
    return measurement(clients, clients / latency_ms * 1000, latency_ms)


def result(per_s: float, p95_ms: float = 50.0, *, clients: int = 16, budget_ms: float = 100.0) -> TrialResult:
    """A setting with one load."""
    return trial_result((measurement(clients, per_s, p95_ms),), budget_ms)
