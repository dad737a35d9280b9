"""The rules of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2). Pure: time is an argument.

Source: https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ and, for what it leaves out,
stabilizeRecommendationWithBehaviors and convertDesiredReplicasWithBehaviorRate of pkg/controller/podautoscaler.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

SYNC_S = 15.0
"""How often it looks."""

TOLERANCE = 0.1
"""A metric so close to its target changes nothing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """At most so many pods, or so many per cent, in a period."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds one direction. Of several policies the one that allows most holds (selectPolicy: Max)."""

    stabilization_s: float
    policies: Sequence[Policy]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Reads `scaleUp` or `scaleDown` of a manifest. Raises ValueError: another selectPolicy than Max."""
        if given.get("selectPolicy", "Max") != "Max":
            raise ValueError(f"selectPolicy {given['selectPolicy']} is not simulated")
        policies = [Policy(each["type"], each["value"], each["periodSeconds"]) for each in given["policies"]]
        return cls(given["stabilizationWindowSeconds"], policies)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Bounds, and the rules of both directions."""

    least: int
    most: int
    up: Rules
    down: Rules


def by_average(total: float, target: float, replicas: int) -> int:
    """Returns the replicas that a metric of the type AverageValue asks for, of which each is to have `target`."""
    if abs(total / (target * replicas) - 1) <= TOLERANCE:
        return replicas
    return math.ceil(total / target)


def by_utilization(used: Sequence[float], unready: int, target: float) -> int:
    """Returns the replicas that a share of what each pod asks for leads to.

    Args:
        used: of each pod that is ready, as a share of its request.
        unready: how many are not ready yet: they count as idle where this leads to more pods.
        target: the share that each is to use.
    """
    replicas = len(used) + unready
    if not used:
        return replicas
    ratio = sum(used) / len(used) / target
    if ratio > 1 and unready:
        spread = sum(used) / replicas / target
        return replicas if spread <= 1 + TOLERANCE else math.ceil(spread * replicas)
    return replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * len(used))


class Autoscaler:
    """Turns what metrics ask for into replicas, by its behaviour. It is to be asked each SYNC_S."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._asked: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()
        self._kept_s = max(
            each
            for rules in (behaviour.up, behaviour.down)
            for each in (rules.stabilization_s, *(policy.period_s for policy in rules.policies))
        )

    def replicas(self, now: float, current: int, asked: int) -> int:
        """Returns how many there are to be, of `current` ones, when metrics ask for `asked`."""
        for kept in (self._asked, self._changes):
            while kept and kept[0][0] < now - self._kept_s:
                kept.popleft()
        self._asked.append((now, asked))
        wanted = self._bounded(now, current, self._stable(now, current))
        if wanted != current:
            self._changes.append((now, wanted - current))
        return wanted

    def _stable(self, now: float, current: int) -> int:
        """Goes up to the least, and down to the most, that was asked for in the window of that direction."""
        up = min(self._lately(now, self._behaviour.up.stabilization_s))
        down = max(self._lately(now, self._behaviour.down.stabilization_s))
        return min(max(current, up), down)

    def _lately(self, now: float, window_s: float) -> list[int]:
        return [asked for then, asked in self._asked if then > now - window_s or then == now]

    def _bounded(self, now: float, current: int, wanted: int) -> int:
        behaviour = self._behaviour
        if wanted > current:
            most = max(self._reach(now, current, policy, 1) for policy in behaviour.up.policies)
            wanted = min(wanted, max(current, most))
        elif wanted < current:
            least = min(self._reach(now, current, policy, -1) for policy in behaviour.down.policies)
            wanted = max(wanted, min(current, least))
        return min(max(wanted, behaviour.least), behaviour.most)

    def _reach(self, now: float, current: int, policy: Policy, sign: int) -> int:
        """Returns how far a policy lets it go: from what there was at the beginning of its period."""
        before = current - sum(by for then, by in self._changes if then > now - policy.period_s)
        if policy.kind == "Pods":
            return before + sign * policy.value
        share = before * (1 + sign * policy.value / 100)
        return math.ceil(share) if sign > 0 else math.floor(share)
