"""Gateways, the queue and workers through a day, in steps of a second, with the autoscalers at work.

Requests of a step are kept together (`line`), so a day of a billion takes seconds. What a request takes besides the
time in these lines is that of a worker at its load (`station`), which was simulated batch by batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.dispatch.admission import most_tokens
from api.settings import GatewaySettings
from bench.autoscaling.hpa import SYNC_S, by_utilization
from bench.autoscaling.keda import Scaler
from bench.autoscaling.line import Group, Line
from bench.autoscaling.manifests import Autoscalers
from bench.autoscaling.pods import Fleet
from bench.autoscaling.station import Station
from bench.autoscaling.traffic import STEP_S
from bench.autoscaling.usage import Usage

MOST_LOAD = 0.95


class Outage(NamedTuple):
    """Redis is away: nothing of requests gets in or out, and KEDA cannot ask it."""

    at_s: float
    for_s: float

    def lasts(self, now: float) -> bool:
        """Whether it is away now."""
        return self.at_s <= now < self.at_s + self.for_s


NEVER = Outage(math.inf, 0.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and who asks it.

    Attributes:
        station: what a worker does.
        night_per_s: requests a second at night.
        inputs: of each request.
        tokens: of each input.
        worker_start_s: from the order of a worker to when it claims its first entry.
        gateway_start_s: the same of a gateway.
        stop_s: how long a pod is there after the order to leave.
        gateway_cpu_s: CPU that a gateway needs for a request. It has one core, and asks for one.
        settings: of the gateways.
        outage: when Redis is away.
    """

    station: Station
    night_per_s: float
    inputs: int = 1
    tokens: float = 39.0
    worker_start_s: float = 15.0
    gateway_start_s: float = 5.0
    stop_s: float = 5.0
    gateway_cpu_s: float = 0.0002
    settings: GatewaySettings = field(default_factory=GatewaySettings.model_construct)
    outage: Outage = NEVER

    @property
    def entries(self) -> int:
        """Entries that a request becomes."""
        return math.ceil(self.inputs / self.settings.inputs_per_entry)

    @property
    def worker_per_s(self) -> float:
        """Requests a second that a worker can do."""
        return self.station.inputs_per_s / self.inputs

    @property
    def budget_s(self) -> float:
        """The time of a request whose client names none."""
        return (self.settings.request_timeout_ms + self.inputs * self.settings.request_timeout_per_input_ms) / 1000

    def room(self, workers: int) -> int:
        """Returns how many requests may be in the queue: by gateways' own bounds and rules."""
        tokens_per_s = workers * self.station.inputs_per_s * self.tokens
        tokens = min(self.settings.max_queue_tokens, most_tokens(int(tokens_per_s), self.budget_s))
        return int(min(self.settings.max_queue_inputs, tokens / self.tokens) / self.inputs)


@dataclass(slots=True)
class Course:
    """What happened, step by step; and of each group that was answered, when, how many, how late, at which load."""

    arrived: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    paid: list[int] = field(default_factory=list)
    gateways: list[int] = field(default_factory=list)
    ready_gateways: list[int] = field(default_factory=list)
    answered: list[tuple[int, int, float, float]] = field(default_factory=list)
    waiting: int = 0

    @property
    def served(self) -> int:
        """All who had their answer."""
        return sum(number for _, number, _, _ in self.answered)


def simulate(scene: Scene, autoscalers: Autoscalers, arrivals: NDArray[np.int64], seed: int = 1) -> Course:
    """Runs a day, given how many requests come in each step; it begins with as few pods as there may be."""
    return _Cluster(scene, autoscalers, seed).run(arrivals)


def in_lane(scene: Scene, waiting: int, held: float) -> float:
    """Returns the entries of so many requests that wait, and of so many inputs that workers hold."""
    # A worker that has time holds requests, not inputs: one input in its hands is a whole request's entry.
    return (waiting + held / scene.inputs) * scene.entries


class _Cluster:
    def __init__(self, scene: Scene, autoscalers: Autoscalers, seed: int) -> None:
        self._scene = scene
        self._gateways = Fleet(autoscalers.gateways.least, scene.gateway_start_s, scene.stop_s)
        self._workers = Fleet(max(1, autoscalers.workers.least), scene.worker_start_s, scene.stop_s)
        self._keda = Scaler(autoscalers.workers)
        self._hpa, self._target = autoscalers.gateways.autoscaler(), autoscalers.gateways.target
        self._synced_s = 0.0
        self._usage = Usage()
        self._before, self._queue = Line(), Line()
        self._random = np.random.default_rng(seed)
        self._course = Course()

    def run(self, arrivals: NDArray[np.int64]) -> Course:
        course = self._course
        for step, came in enumerate(arrivals.tolist()):
            now = step * STEP_S
            self._gateways.advance(now)
            self._workers.advance(now)
            self._before.join(Group(now, STEP_S, came))
            course.arrived.append(came)
            course.refused.append(self._pass_on(now))
            course.expired.append(self._queue.expire(now - self._scene.budget_s))
            load = self._run(step, now)
            course.workers.append(self._workers.replicas)
            course.ready.append(self._workers.ready)
            course.paid.append(self._workers.paid)
            course.gateways.append(self._gateways.replicas)
            course.ready_gateways.append(self._gateways.ready)
            self._scale(now + STEP_S, load)
        course.waiting = self._before.number + self._queue.number
        return course

    def _pass_on(self, now: float) -> int:
        """Has gateways take what they have CPU for, and submit what the queue has room for; returns the refused."""
        ready = self._gateways.ready
        per_s = ready / self._scene.gateway_cpu_s
        passed = self._before.serve(now, STEP_S, per_s)
        self._usage.note(sum(each.group.number for each in passed) / per_s / STEP_S)
        # Entries leave the queue while others come: what the workers get done in this step is room, too.
        room = self._scene.room(self._workers.ready) - self._queue.number
        room += int(self._workers.ready * self._scene.worker_per_s * STEP_S)
        room = 0 if self._scene.outage.lasts(now) else room
        refused = 0
        for each in passed:
            taken = min(each.group.number, max(0, room))
            if taken:
                self._queue.join(each.group.split(taken)[0])
            room -= taken
            refused += each.group.number - taken
        return refused

    def _run(self, step: int, now: float) -> float:
        """Has workers take what waits; returns their load."""
        per_s = 0.0 if self._scene.outage.lasts(now) else self._workers.ready * self._scene.worker_per_s
        served = self._queue.serve(now, STEP_S, per_s)
        number = sum(each.group.number for each in served)
        load = min(MOST_LOAD, number / (per_s * STEP_S)) if per_s else 0.0
        self._course.answered += [(step, each.group.number, each.waited_s, load) for each in served]
        return load

    def _entries(self, load: float) -> float:
        """Returns XLEN of the lane: of what waits, and of what workers hold at their load."""
        mean, spread = self._scene.station.holds(load)
        ready = self._workers.ready
        inputs = max(0.0, self._random.normal(mean * ready, spread * math.sqrt(ready)))
        return in_lane(self._scene, self._queue.number, inputs)

    def _scale(self, now: float, load: float) -> None:
        if self._keda.due(now):
            entries = None if self._scene.outage.lasts(now) else math.ceil(self._entries(load))
            self._workers.scale(now, self._keda.replicas(now, self._workers.replicas, entries))
        if now - self._synced_s >= SYNC_S:
            self._synced_s = now
            asked = by_utilization(self._usage.told(now, self._gateways), self._target)
            self._gateways.scale(now, self._hpa.replicas(now, self._gateways.replicas, asked))
