"""Simulation of gateways, the queue and workers over a day, in steps of one second, with their autoscalers.

The requests of a step are kept together as a cohort (`fifo_queue`), so a day of a billion requests takes seconds. The
latency of a request is its time in these queues plus the latency of a worker at its load (`worker_profile`), which was
simulated batch by batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.dispatch.admission import max_tokens
from api.settings import GatewaySettings
from bench.autoscaling.deployment import Deployment
from bench.autoscaling.fifo_queue import Cohort, FifoQueue
from bench.autoscaling.hpa import SYNC_S, replicas_for_utilization
from bench.autoscaling.keda import KedaScaler
from bench.autoscaling.manifests import Autoscalers
from bench.autoscaling.metrics_server import MetricsServer
from bench.autoscaling.traffic import STEP_S
from bench.autoscaling.worker_profile import WorkerProfile

MAX_LOAD = 0.95


class Outage(NamedTuple):
    """Redis is down: no request enters or leaves the queue, and KEDA cannot query Redis."""

    start_s: float
    duration_s: float

    def is_active(self, now: float) -> bool:
        """Whether Redis is down now."""
        return self.start_s <= now < self.start_s + self.duration_s


NO_OUTAGE = Outage(math.inf, 0.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and its load.

    Attributes:
        profile: latency and occupancy of a worker.
        night_per_s: requests per second at night.
        inputs: inputs in each request.
        tokens: tokens in each input.
        worker_start_s: time from the order of a worker to its first claimed entry.
        gateway_start_s: time from the order of a gateway to its first request.
        stop_s: time from the order to stop a pod to its end.
        gateway_cpu_s: CPU time that a gateway needs for a request. A gateway has one core, and requests one.
        settings: settings of the gateways.
        outage: when Redis is down.
    """

    profile: WorkerProfile
    night_per_s: float
    inputs: int = 1
    tokens: float = 39.0
    worker_start_s: float = 15.0
    gateway_start_s: float = 5.0
    stop_s: float = 5.0
    gateway_cpu_s: float = 0.0002
    settings: GatewaySettings = field(default_factory=GatewaySettings.model_construct)
    outage: Outage = NO_OUTAGE

    @property
    def entries(self) -> int:
        """Number of entries of a request."""
        return math.ceil(self.inputs / self.settings.inputs_per_entry)

    @property
    def worker_per_s(self) -> float:
        """Requests per second that a worker can process."""
        return self.profile.inputs_per_s / self.inputs

    @property
    def budget_s(self) -> float:
        """The timeout (s) of a request whose client sets none."""
        return (self.settings.request_timeout_ms + self.inputs * self.settings.request_timeout_per_input_ms) / 1000

    def queue_capacity(self, workers: int) -> int:
        """Returns the maximum number of requests in the queue, by the gateways' own bounds and rules."""
        tokens_per_s = workers * self.profile.inputs_per_s * self.tokens
        tokens = min(self.settings.max_queue_tokens, max_tokens(int(tokens_per_s), self.budget_s))
        return int(min(self.settings.max_queue_inputs, tokens / self.tokens) / self.inputs)


@dataclass(slots=True)
class DayHistory:
    """Counts of requests and pods in each step of a day.

    `answered` has, for each answered cohort, its step, its number of requests, their wait (s) and the workers' load.
    `num_waiting` is the number of requests that are still queued at the end.
    """

    arrived: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    ready_workers: list[int] = field(default_factory=list)
    billed_workers: list[int] = field(default_factory=list)
    gateways: list[int] = field(default_factory=list)
    ready_gateways: list[int] = field(default_factory=list)
    answered: list[tuple[int, int, float, float]] = field(default_factory=list)
    num_waiting: int = 0

    @property
    def num_answered(self) -> int:
        """Number of answered requests."""
        return sum(number for _, number, _, _ in self.answered)


def simulate(scenario: Scenario, autoscalers: Autoscalers, arrivals: NDArray[np.int64], seed: int = 1) -> DayHistory:
    """Simulates a day, given the number of requests that arrive in each step.

    It begins with the minimum number of pods.
    """
    return _Cluster(scenario, autoscalers, seed).run(arrivals)


def lane_entries(scenario: Scenario, waiting: int, held: float) -> float:
    """Returns the entries in the lane, given `waiting` requests in the queue and `held` inputs in the workers."""
    # A worker below its capacity holds whole requests, not single inputs: one held input belongs to a request's entry.
    return (waiting + held / scenario.inputs) * scenario.entries


class _Cluster:
    def __init__(self, scenario: Scenario, autoscalers: Autoscalers, seed: int) -> None:
        self._scenario = scenario
        self._gateways = Deployment(autoscalers.gateways.min_replicas, scenario.gateway_start_s, scenario.stop_s)
        self._workers = Deployment(max(1, autoscalers.workers.min_replicas), scenario.worker_start_s, scenario.stop_s)
        self._keda = KedaScaler(autoscalers.workers)
        self._hpa, self._target = autoscalers.gateways.autoscaler(), autoscalers.gateways.target
        self._synced_s = 0.0
        self._metrics_server = MetricsServer()
        self._gateway_queue, self._lane = FifoQueue(), FifoQueue()
        self._random = np.random.default_rng(seed)
        self._history = DayHistory()

    def run(self, arrivals: NDArray[np.int64]) -> DayHistory:
        history = self._history
        for step, num_arrivals in enumerate(arrivals.tolist()):
            now = step * STEP_S
            self._gateways.advance(now)
            self._workers.advance(now)
            self._gateway_queue.append(Cohort(now, STEP_S, num_arrivals))
            history.arrived.append(num_arrivals)
            history.refused.append(self._submit(now))
            history.expired.append(self._lane.expire(now - self._scenario.budget_s))
            load = self._process(step, now)
            history.workers.append(self._workers.replicas)
            history.ready_workers.append(self._workers.ready)
            history.billed_workers.append(self._workers.billed)
            history.gateways.append(self._gateways.replicas)
            history.ready_gateways.append(self._gateways.ready)
            self._scale(now + STEP_S, load)
        history.num_waiting = self._gateway_queue.length + self._lane.length
        return history

    def _submit(self, now: float) -> int:
        """Passes requests through the gateways into the queue; returns the number of refused requests.

        The gateways' CPU bounds the requests that they take, and the capacity of the queue those that they submit.
        """
        ready = self._gateways.ready
        per_s = ready / self._scenario.gateway_cpu_s
        departures = self._gateway_queue.serve(now, STEP_S, per_s)
        self._metrics_server.record(sum(each.cohort.size for each in departures) / per_s / STEP_S)
        # Entries leave the queue while others arrive: the workers' throughput of this step adds to the free capacity.
        free = self._scenario.queue_capacity(self._workers.ready) - self._lane.length
        free += int(self._workers.ready * self._scenario.worker_per_s * STEP_S)
        free = 0 if self._scenario.outage.is_active(now) else free
        refused = 0
        for each in departures:
            admitted = min(each.cohort.size, max(0, free))
            if admitted:
                self._lane.append(each.cohort.split(admitted)[0])
            free -= admitted
            refused += each.cohort.size - admitted
        return refused

    def _process(self, step: int, now: float) -> float:
        """Lets the workers process waiting requests; returns their load."""
        per_s = 0.0 if self._scenario.outage.is_active(now) else self._workers.ready * self._scenario.worker_per_s
        departures = self._lane.serve(now, STEP_S, per_s)
        num_requests = sum(each.cohort.size for each in departures)
        load = min(MAX_LOAD, num_requests / (per_s * STEP_S)) if per_s else 0.0
        self._history.answered += [(step, each.cohort.size, each.waited_s, load) for each in departures]
        return load

    def _lane_length(self, load: float) -> float:
        """Returns XLEN of the lane: the waiting entries, and those that workers hold at their load."""
        mean, std = self._scenario.profile.occupancy_at(load)
        ready = self._workers.ready
        inputs = max(0.0, self._random.normal(mean * ready, std * math.sqrt(ready)))
        return lane_entries(self._scenario, self._lane.length, inputs)

    def _scale(self, now: float, load: float) -> None:
        if self._keda.is_due(now):
            entries = None if self._scenario.outage.is_active(now) else math.ceil(self._lane_length(load))
            self._workers.scale(now, self._keda.replicas(now, self._workers.replicas, entries))
        if now - self._synced_s >= SYNC_S:
            self._synced_s = now
            metrics = self._metrics_server.pod_metrics(now, self._gateways)
            recommended = replicas_for_utilization(metrics, self._target)
            self._gateways.scale(now, self._hpa.replicas(now, self._gateways.replicas, recommended))
