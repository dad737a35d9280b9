"""The rules of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2). Pure: the time is an argument.

Source: https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ and, for what that leaves
open, the functions of Kubernetes' pkg/controller/podautoscaler that the docstrings name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

SYNC_S = 15.0
"""How often it decides (--horizontal-pod-autoscaler-sync-period)."""

TOLERANCE = 0.1
"""A metric this close to its target changes nothing (--horizontal-pod-autoscaler-tolerance)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """At most so many pods, or so many per cent of them, in a period."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float

    def reach(self, before: int, sign: int) -> int:
        """Returns how far it lets `before` pods come by the end of a period: up (1), or down (-1).

        Per cents are rounded so that there is always a step, in either direction.
        """
        if self.kind == "Pods":
            return before + sign * self.value
        hundredths = before * (100 + sign * self.value)
        return -(-hundredths // 100) if sign > 0 else hundredths // 100


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds one direction. `select` takes, of what several policies allow, the most, the least, or nothing."""

    stabilization_s: float
    policies: Sequence[Policy]
    select: Literal["Max", "Min", "Disabled"] = "Max"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The rules of both directions. The defaults are Kubernetes'."""

    up: Rules = Rules(0.0, (Policy("Percent", 100, 15.0), Policy("Pods", 4, 15.0)))
    down: Rules = Rules(300.0, (Policy("Percent", 100, 15.0),))


DEFAULT = Behaviour()


@dataclass(frozen=True, slots=True)
class Pods:
    """What is known of a Deployment's pods: what each ready one uses, as a share of its request.

    Of `missing` ones nothing is known. Those that are not `ready` yet may use CPU to start, which says nothing.
    """

    used: Sequence[float]
    unready: int = 0
    missing: int = 0


def by_average(total: float, target: float, replicas: int) -> int:
    """Returns the replicas that an external metric of type AverageValue asks for: each is to have `target` of it.

    Pods that are not ready count like all others (GetExternalPerPodMetricReplicas).
    """
    if _is_close(total / (target * replicas)):
        return replicas
    return math.ceil(total / target)


def by_utilization(pods: Pods, target: float) -> int:
    """Returns the replicas that the mean use of a resource asks for (GetResourceReplicas).

    Pods that are not ready, or missing, damp a step up: they count as idle. Missing ones damp a step down: they count
    as using all that they asked for. Neither turns a step round.
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
    wanted = math.ceil(damped * len(counted))
    return min(wanted, replicas) if damped < 1 else max(wanted, replicas)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _is_close(ratio: float) -> bool:
    return abs(ratio - 1) <= TOLERANCE + 1e-9  # 1.1 - 1 is a little over 0.1 in floats


class Autoscaler:
    """Turns what metrics ask for into replicas. It is to be asked each SYNC_S.

    Args:
        least: minReplicas.
        most: maxReplicas.
        behaviour: how fast it goes.
    """

    def __init__(self, least: int, most: int, behaviour: Behaviour) -> None:
        self._least, self._most = least, most
        self._up, self._down = behaviour.up, behaviour.down
        self._asked: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []
        both = (self._up, self._down)
        self._kept_s = max(
            *(rules.stabilization_s for rules in both), *(each.period_s for rules in both for each in rules.policies)
        )

    def replicas(self, now: float, current: int, asked: int) -> int:
        """Returns how many there are to be, of `current` ones, when metrics ask for `asked`."""
        self._asked = [*_since(self._asked, now - self._kept_s), (now, asked)]
        self._changes = _since(self._changes, now - self._kept_s)
        wanted = self._limited(now, current, self._stable(now, current))
        if wanted != current:
            self._changes.append((now, wanted - current))
        return wanted

    def _stable(self, now: float, current: int) -> int:
        """Up no further than the least, and down no further than the most, that was asked for in the window of that.

        (stabilizeRecommendationWithBehaviors)
        """
        up = min(asked for _, asked in _window(self._asked, now, self._up.stabilization_s))
        down = max(asked for _, asked in _window(self._asked, now, self._down.stabilization_s))
        return min(max(current, up), down)

    def _limited(self, now: float, current: int, wanted: int) -> int:
        """Within what policies allow, and then the bounds (convertDesiredReplicasWithBehaviorRate)."""
        if not self._least <= current <= self._most:
            return min(max(current, self._least), self._most)
        if wanted > current:
            wanted = min(wanted, max(current, self._reach(now, current, self._up, 1)))
        elif wanted < current:
            wanted = max(wanted, min(current, self._reach(now, current, self._down, -1)))
        return min(max(wanted, self._least), self._most)

    def _reach(self, now: float, current: int, rules: Rules, sign: int) -> int:
        """Returns how far the policies let it go, each from what there was at the beginning of its period."""
        if rules.select == "Disabled":
            return current
        furthest: Callable[[list[int]], int] = max if (rules.select == "Max") == (sign > 0) else min
        return furthest(
            [
                policy.reach(current - sum(by for _, by in _since(self._changes, now - policy.period_s)), sign)
                for policy in rules.policies
            ]
        )


def _since(noted: Sequence[tuple[float, int]], cutoff: float) -> list[tuple[float, int]]:
    return [each for each in noted if each[0] > cutoff]


def _window(noted: Sequence[tuple[float, int]], now: float, seconds: float) -> list[tuple[float, int]]:
    """Returns what was noted in the last seconds, and in any case what was noted last."""
    return _since(noted, now - seconds) or [noted[-1]]
