"""KEDA's rules for a ScaledObject. Pure: the time is an argument.

Between 0 and 1 replicas KEDA scales itself, when it polls. From 1 replica on the HPA that KEDA creates scales, which
requests the metric from KEDA for each decision. Source: https://keda.sh/docs/latest/reference/scaledobject-spec/ and
KEDA's pkg/scaling/executor/scale_scaledobjects.go and pkg/fallback/fallback.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bench.autoscaling.hpa import DEFAULT, SYNC_S, Behavior, HorizontalPodAutoscaler, replicas_for_average_value

FallbackBehavior = Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]


@dataclass(frozen=True, slots=True)
class Fallback:
    """The replicas after more than `failures` consecutive failures to read the metric."""

    failures: int
    replicas: int
    behavior: FallbackBehavior = "static"

    def replicas_for(self, current: int) -> int:
        """Returns the replicas, given the `current` ones."""
        match self.behavior:
            case "static":
                return self.replicas
            case "currentReplicas":
                return current
            case "currentReplicasIfHigher":
                return max(current, self.replicas)
            case "currentReplicasIfLower":
                return min(current, self.replicas)


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """The settings of a manifest.

    Attributes:
        target: target of the metric for each replica: entries of the interactive lane.
        min_replicas: minReplicaCount.
        max_replicas: maxReplicaCount.
        activation: KEDA is active while the metric is above this value.
        polling_interval_s: interval at which KEDA checks whether it is active.
        cooldown_period_s: if `min_replicas` is 0, all replicas stop when KEDA has been inactive for this time.
        behavior: behavior of the HPA, whose own minimum is 1.
        fallback: fallback if the metric cannot be read.
        bulk_target: target of entries of the bulk lane for each replica. The lane that asks for more replicas counts.
    """

    target: float
    min_replicas: int
    max_replicas: int
    activation: float = 0.0
    polling_interval_s: float = 30.0
    cooldown_period_s: float = 300.0
    behavior: Behavior = DEFAULT
    fallback: Fallback | None = None
    bulk_target: float = math.inf


class KedaScaler:
    """KEDA and its HPA for one ScaledObject. Call it at any time: it acts when a poll or a sync is due."""

    def __init__(self, scaled: ScaledObject) -> None:
        self._scaled = scaled
        self._hpa = HorizontalPodAutoscaler(max(1, scaled.min_replicas), scaled.max_replicas, scaled.behavior)
        self._failures = 0
        self._polled_s = self._synced_s = self._active_s = -math.inf

    def is_due(self, now: float) -> bool:
        """Whether it reads the metric now."""
        return self._is_poll_due(now) or self._is_sync_due(now)

    def replicas(self, now: float, current: int, total: float | None) -> int:
        """Returns the desired replicas, given the `current` ones and the metric (None: it cannot be read)."""
        if self._is_poll_due(now):
            self._polled_s = now
            if total is not None:
                current = self._activate(now, current, active=total > self._scaled.activation)
        if current and self._is_sync_due(now):
            self._synced_s = now
            total = self._hpa_metric(current, total)
            if total is not None:
                recommended = replicas_for_average_value(total, self._scaled.target, current)
                current = self._hpa.replicas(now, current, recommended)
        return current

    def _is_poll_due(self, now: float) -> bool:
        return now - self._polled_s >= self._scaled.polling_interval_s

    def _is_sync_due(self, now: float) -> bool:
        return now - self._synced_s >= SYNC_S

    def _activate(self, now: float, current: int, *, active: bool) -> int:
        if active:
            self._active_s = now
            return current or max(1, self._scaled.min_replicas)
        if self._scaled.min_replicas == 0 and now - self._active_s > self._scaled.cooldown_period_s:
            return 0
        return max(current, self._scaled.min_replicas)

    def _hpa_metric(self, current: int, total: float | None) -> float | None:
        """Returns the value that KEDA reports to its HPA; None for an error.

        It is the metric, or in its place the value that gives the fallback's replicas.
        """
        if total is not None:
            self._failures = 0
            return total
        self._failures += 1
        fallback = self._scaled.fallback
        if fallback is None or self._failures <= fallback.failures:
            return None
        return fallback.replicas_for(current) * self._scaled.target
