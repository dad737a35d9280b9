"""KEDA's rules for a ScaledObject: between 0 and 1 it acts itself, above that it gives its HPA a metric. Pure.

Source: https://keda.sh/docs/latest/reference/scaledobject-spec/ and pkg/scaling/executor/scale_scaledobjects.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.autoscaling.hpa import SYNC_S, Autoscaler, Behaviour, by_average


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """What a manifest sets.

    Attributes:
        target: entries that each replica is to have.
        least: minReplicaCount.
        polling_s: how often KEDA looks whether there is anything at all.
        cooldown_s: so long after it last saw something all replicas go, where `least` is 0.
        behaviour: of the HPA that it makes, whose own least is 1.
    """

    target: float
    least: int
    polling_s: float
    cooldown_s: float
    behaviour: Behaviour


class Scaler:
    """A ScaledObject at work. `replicas` may be asked at any time: it does what is due."""

    def __init__(self, scaled: ScaledObject) -> None:
        self._scaled = scaled
        self._hpa = Autoscaler(scaled.behaviour)
        self._polled_at = self._synced_at = self._active_at = float("-inf")

    def replicas(self, now: float, current: int, entries: int) -> int:
        """Returns how many workers there are to be, of `current` ones, with so many entries in the lanes."""
        if now - self._polled_at >= self._scaled.polling_s:
            self._polled_at = now
            current = self._switched(now, current, active=entries > 0)
        if current and now - self._synced_at >= SYNC_S:
            self._synced_at = now
            current = self._hpa.replicas(now, current, by_average(entries, self._scaled.target, current))
        return current

    def _switched(self, now: float, current: int, *, active: bool) -> int:
        if active:
            self._active_at = now
            return max(current, self._scaled.least, 1)
        if self._scaled.least == 0 and now - self._active_at >= self._scaled.cooldown_s:
            return 0
        return max(current, self._scaled.least)
