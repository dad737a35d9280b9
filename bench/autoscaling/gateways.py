"""The gateways' HPA on the same day: by the CPU that a request costs one, of which each can use a core."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bench.autoscaling.day import DAY_S
from bench.autoscaling.fleet import Load
from bench.autoscaling.hpa import SYNC_S, Autoscaler, by_utilization
from bench.autoscaling.manifests import Utilization

SEEN_LATE_S = 30.0
"""Age of what the metrics server says: it looks each 15 s, at the last 15 s or more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When (s), how many gateways there are and how many of them are ready, and the cores that each of these uses."""

    at: float
    gateways: int
    ready: int
    used: float


def run(load: Load, request_cpu_s: float, start_s: float, rules: Utilization) -> list[Moment]:
    """Returns the day of the gateways, a moment for each look of the HPA."""
    autoscaler, ready, starting = Autoscaler(rules.behaviour), rules.behaviour.least, deque[float]()
    found: list[Moment] = []
    for step in range(round(DAY_S / SYNC_S)):
        now = step * SYNC_S
        while starting and starting[0] <= now:
            starting.popleft()
            ready += 1
        seen = min(1.0, load(max(0.0, now - SEEN_LATE_S)) * request_cpu_s / ready)
        asked = by_utilization([seen] * ready, len(starting), rules.target)
        wanted = autoscaler.replicas(now, ready + len(starting), asked)
        while ready + len(starting) < wanted:
            starting.append(now + start_s)
        while ready + len(starting) > wanted:
            if starting:
                starting.pop()
            else:
                ready -= 1
        found.append(Moment(now, wanted, ready, load(now) * request_cpu_s / ready))
    return found
