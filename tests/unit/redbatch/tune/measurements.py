"""Measurements and results for the tests of the policy, and simulated servers."""

from __future__ import annotations

import math

from redbatch.tune.measurement import Measurement, TrialResult, trial_result


def measurement(clients: int, per_s: float, p95_ms: float, errors: int = 0) -> Measurement:
    """Returns a measurement with these figures."""
    return Measurement(clients, per_s, p95_ms / 2, p95_ms, p95_ms, answers=1_000, errors=errors)


def batching_server(clients: int, base_ms: float, item_ms: float, size: int) -> Measurement:
    """Returns the measurement of a server that runs its clients in batches of up to `size`, one after the other."""
    batch_ms = base_ms + item_ms * (min(clients, size) - 1)
    latency_ms = batch_ms * math.ceil(clients / size)
    return measurement(clients, clients / latency_ms * 1000, latency_ms)


def result(per_s: float, p95_ms: float = 50.0, *, clients: int = 16, budget_ms: float = 100.0) -> TrialResult:
    """Returns the result of a candidate with one load."""
    return trial_result((measurement(clients, per_s, p95_ms),), budget_ms)
