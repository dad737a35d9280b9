"""The rules of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2). Pure: the time is an argument.

Source: https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ and, where the documentation
is silent, the functions of Kubernetes' pkg/controller/podautoscaler that the docstrings name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

SYNC_S = 15.0
"""Interval between its decisions (--horizontal-pod-autoscaler-sync-period)."""

TOLERANCE = 0.1
"""A metric within this share of its target changes nothing (--horizontal-pod-autoscaler-tolerance)."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """A bound on the change in a period: at most `value` pods, or `value` per cent of the pods."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float

    def limit(self, before: int, sign: int) -> int:
        """Returns the bound on the pods at the end of a period that begins with `before` pods: up (1), or down (-1).

        Percentages are rounded so that a step is always possible, in either direction.
        """
        if self.kind == "Pods":
            return before + sign * self.value
        hundredths = before * (100 + sign * self.value)
        return -(-hundredths // 100) if sign > 0 else hundredths // 100


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The bounds in one direction.

    `select_policy` is the choice among several policies: the largest change that any allows ("Max"), the smallest
    ("Min"), or no change at all ("Disabled").
    """

    stabilization_window_s: float
    policies: Sequence[ScalingPolicy]
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"


@dataclass(frozen=True, slots=True)
class Behavior:
    """The rules of both directions. The defaults are Kubernetes'."""

    up: ScalingRules = ScalingRules(0.0, (ScalingPolicy("Percent", 100, 15.0), ScalingPolicy("Pods", 4, 15.0)))
    down: ScalingRules = ScalingRules(300.0, (ScalingPolicy("Percent", 100, 15.0),))


DEFAULT = Behavior()


@dataclass(frozen=True, slots=True)
class PodMetrics:
    """The metrics of a Deployment's pods: `used` has the usage of each ready pod, as a share of its request.

    `missing` pods have no metrics. `unready` pods may use CPU to start, so their usage does not count.
    """

    used: Sequence[float]
    unready: int = 0
    missing: int = 0


def replicas_for_average_value(total: float, target: float, replicas: int) -> int:
    """Returns the replicas for an external metric of type AverageValue, with at most `target` of it for each.

    Pods that are not ready count like all others (GetExternalPerPodMetricReplicas).
    """
    if _is_close(total / (target * replicas)):
        return replicas
    return math.ceil(total / target)


def replicas_for_utilization(pods: PodMetrics, target: float) -> int:
    """Returns the replicas for the mean usage of a resource (GetResourceReplicas).

    Unready and missing pods damp a step up: they count as idle. Missing pods damp a step down: they count as using
    their whole request. Neither reverses the direction of a step.
    """
    replicas = len(pods.used) + pods.unready + pods.missing
    if not pods.used:
        return replicas
    ratio = _mean(pods.used) / target
    fill = ratio > 1 and pods.unready > 0
    if not fill and not pods.missing:
        return replicas if _is_close(ratio) else math.ceil(ratio * len(pods.used))
    counted = [*pods.used, *[max(1.0, target) if ratio < 1 else 0.0] * pods.missing, *[0.0] * (fill * pods.unready)]
    damped = _mean(counted) / target
    if _is_close(damped) or (ratio < 1) != (damped < 1):
        return replicas
    desired = math.ceil(damped * len(counted))
    return min(desired, replicas) if damped < 1 else max(desired, replicas)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _is_close(ratio: float) -> bool:
    return abs(ratio - 1) <= TOLERANCE + 1e-9  # 1.1 - 1 is a little over 0.1 in floats


class HorizontalPodAutoscaler:
    """Turns the recommendations of metrics into replicas. Call it every SYNC_S.

    Args:
        min_replicas: minReplicas.
        max_replicas: maxReplicas.
        behavior: the bounds on the rate of change.
    """

    def __init__(self, min_replicas: int, max_replicas: int, behavior: Behavior) -> None:
        self._min_replicas, self._max_replicas = min_replicas, max_replicas
        self._up, self._down = behavior.up, behavior.down
        self._recommendations: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []
        both = (self._up, self._down)
        self._history_s = max(
            *(rules.stabilization_window_s for rules in both),
            *(each.period_s for rules in both for each in rules.policies),
        )

    def replicas(self, now: float, current: int, recommended: int) -> int:
        """Returns the desired replicas, given the `current` ones and those that the metrics recommend."""
        self._recommendations = [*_since(self._recommendations, now - self._history_s), (now, recommended)]
        self._changes = _since(self._changes, now - self._history_s)
        desired = self._limit_rate(now, current, self._stabilize(now, current))
        if desired != current:
            self._changes.append((now, desired - current))
        return desired

    def _stabilize(self, now: float, current: int) -> int:
        """Scales up at most to the lowest, and down at most to the highest recommendation in that direction's window.

        (stabilizeRecommendationWithBehaviors)
        """
        up = min(each for _, each in _window(self._recommendations, now, self._up.stabilization_window_s))
        down = max(each for _, each in _window(self._recommendations, now, self._down.stabilization_window_s))
        return min(max(current, up), down)

    def _limit_rate(self, now: float, current: int, desired: int) -> int:
        """Applies the policies, then the bounds (convertDesiredReplicasWithBehaviorRate)."""
        if not self._min_replicas <= current <= self._max_replicas:
            return min(max(current, self._min_replicas), self._max_replicas)
        if desired > current:
            desired = min(desired, max(current, self._policy_limit(now, current, self._up, 1)))
        elif desired < current:
            desired = max(desired, min(current, self._policy_limit(now, current, self._down, -1)))
        return min(max(desired, self._min_replicas), self._max_replicas)

    def _policy_limit(self, now: float, current: int, rules: ScalingRules, sign: int) -> int:
        """Returns the replicas that the policies allow, each counted from the replicas at the start of its period."""
        if rules.select_policy == "Disabled":
            return current
        select: Callable[[list[int]], int] = max if (rules.select_policy == "Max") == (sign > 0) else min
        return select(
            [
                policy.limit(current - sum(by for _, by in _since(self._changes, now - policy.period_s)), sign)
                for policy in rules.policies
            ]
        )


def _since(events: Sequence[tuple[float, int]], cutoff: float) -> list[tuple[float, int]]:
    return [each for each in events if each[0] > cutoff]


def _window(events: Sequence[tuple[float, int]], now: float, seconds: float) -> list[tuple[float, int]]:
    """Returns the events of the last `seconds`, and at least the latest event."""
    return _since(events, now - seconds) or [events[-1]]
