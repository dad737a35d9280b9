"""The CPU usage of pods as an HPA sees it: with a lag, and without samples of new pods."""

from __future__ import annotations

from collections import deque

from bench.autoscaling.deployment import Deployment
from bench.autoscaling.hpa import PodMetrics
from bench.autoscaling.traffic import STEP_S

WINDOW_S = 15.0
"""The metrics server averages over this time; it queries each kubelet at this interval (--metric-resolution)."""

LAG_S = 30.0
"""Assumed age of the end of that window when the HPA decides. The kubelet's own figure may be 15 s old, the metrics
server's copy of it 15 s more, and both need time to collect it: 15 to 45 s in total."""


class MetricsServer:
    """The CPU usage of ready pods, as a share of their request. All pods use the same."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=round((LAG_S + WINDOW_S) / STEP_S))

    def record(self, share: float) -> None:
        """Records the usage of each pod in the step that ends now."""
        self._shares.append(share)

    def pod_metrics(self, now: float, deployment: Deployment) -> PodMetrics:
        """Returns the metrics that an HPA has.

        A pod that was not ready for the whole of the last complete window has no sample, or one that the HPA does not
        count (groupPods).
        """
        num_steps = round(WINDOW_S / STEP_S)
        new = (
            deployment.ready
            if len(self._shares) < num_steps + round(LAG_S / STEP_S)
            else deployment.ready_since(now - LAG_S - WINDOW_S)
        )
        mean = sum(list(self._shares)[:num_steps]) / num_steps
        return PodMetrics([mean] * (deployment.ready - new), unready=deployment.starting, missing=new)
