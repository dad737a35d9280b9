"""What an HPA is told of pods' CPU: how much it was a while ago, and of new pods nothing."""

from __future__ import annotations

from collections import deque

from bench.autoscaling.deployment import Fleet
from bench.autoscaling.hpa import Pods
from bench.autoscaling.traffic import STEP_S

WINDOW_S = 15.0
"""Over so long the metrics server takes the mean: it asks each kubelet that often (--metric-resolution)."""

LAG_S = 30.0
"""Assumed: how old the end of that is when the HPA decides. The kubelet's own figure may be 15 s old, what the metrics
server has of it 15 s more, and both take their time: from 15 to 45 s in all."""


class Usage:
    """The CPU of ready pods, as a share of what they asked for, that are all alike."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=round((LAG_S + WINDOW_S) / STEP_S))

    def note(self, share: float) -> None:
        """Notes what each used in the step that ends now."""
        self._shares.append(share)

    def told(self, now: float, fleet: Fleet) -> Pods:
        """Returns what an HPA knows.

        Of a pod that has not been ready for a whole window when the last one ended there is no sample, or one that the
        HPA does not count (groupPods).
        """
        seen = round(WINDOW_S / STEP_S)
        new = (
            fleet.ready
            if len(self._shares) < seen + round(LAG_S / STEP_S)
            else fleet.ready_since(now - LAG_S - WINDOW_S)
        )
        mean = sum(list(self._shares)[:seen]) / seen
        return Pods([mean] * (fleet.ready - new), unready=fleet.starting, missing=new)
