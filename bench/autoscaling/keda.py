"""KEDA's rules for a ScaledObject. Pure: the time is an argument.

Between 0 and 1 KEDA scales by itself, when it polls. From 1 on an HPA of its own does, which asks KEDA for the metric
each time that it decides. Source: https://keda.sh/docs/latest/reference/scaledobject-spec/ and KEDA's
pkg/scaling/executor/scale_scaledobjects.go and pkg/fallback/fallback.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bench.autoscaling.hpa import DEFAULT, SYNC_S, Autoscaler, Behaviour, by_average

FallbackBehaviour = Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]


@dataclass(frozen=True, slots=True)
class Fallback:
    """How many replicas there are once the metric could not be had more than `failures` times in a row."""

    failures: int
    replicas: int
    behaviour: FallbackBehaviour = "static"

    def among(self, current: int) -> int:
        """Returns how many, of `current` ones."""
        match self.behaviour:
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
    """What a manifest sets.

    Attributes:
        target: how much of the metric each replica is to have: entries of the lane interactive.
        least: minReplicaCount.
        most: maxReplicaCount.
        activation: the metric has to be above it for KEDA to see that there is anything to do.
        polling_s: how often KEDA looks whether there is.
        cooldown_s: so long after there was, all replicas go, where `least` is 0.
        behaviour: of the HPA, whose own least is 1.
        fallback: for when the metric cannot be had.
        bulk_target: how many entries of the lane bulk each replica is to have. Of both lanes the one counts by which
            there are to be more.
    """

    target: float
    least: int
    most: int
    activation: float = 0.0
    polling_s: float = 30.0
    cooldown_s: float = 300.0
    behaviour: Behaviour = DEFAULT
    fallback: Fallback | None = None
    bulk_target: float = math.inf


class Scaler:
    """A ScaledObject at work. It may be asked at any time, and does what is due."""

    def __init__(self, scaled: ScaledObject) -> None:
        self._scaled = scaled
        self._hpa = Autoscaler(max(1, scaled.least), scaled.most, scaled.behaviour)
        self._failures = 0
        self._polled_s = self._synced_s = self._active_s = -math.inf

    def due(self, now: float) -> bool:
        """Whether it looks at the metric now."""
        return self._polls(now) or self._syncs(now)

    def replicas(self, now: float, current: int, total: float | None) -> int:
        """Returns how many there are to be, of `current` ones, with so much of the metric; None: it cannot be had."""
        if self._polls(now):
            self._polled_s = now
            if total is not None:
                current = self._switched(now, current, active=total > self._scaled.activation)
        if current and self._syncs(now):
            self._synced_s = now
            total = self._told(current, total)
            if total is not None:
                current = self._hpa.replicas(now, current, by_average(total, self._scaled.target, current))
        return current

    def _polls(self, now: float) -> bool:
        return now - self._polled_s >= self._scaled.polling_s

    def _syncs(self, now: float) -> bool:
        return now - self._synced_s >= SYNC_S

    def _switched(self, now: float, current: int, *, active: bool) -> int:
        if active:
            self._active_s = now
            return current or max(1, self._scaled.least)
        if self._scaled.least == 0 and now - self._active_s > self._scaled.cooldown_s:
            return 0
        return max(current, self._scaled.least)

    def _told(self, current: int, total: float | None) -> float | None:
        """Returns what KEDA tells its HPA: the metric, as much as the fallback's replicas would have, or an error."""
        if total is not None:
            self._failures = 0
            return total
        self._failures += 1
        fallback = self._scaled.fallback
        if fallback is None or self._failures <= fallback.failures:
            return None
        return fallback.among(current) * self._scaled.target
