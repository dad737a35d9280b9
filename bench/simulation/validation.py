"""Validation of the simulator: real clusters with models whose batch time is a formula, and the same loads simulated.

The simulator's parameters of the machine are measured first:

- with the `null` model, the duration of a request's path, one request at a time or at the rate of the load (processes
  that have slept wake up slowly), and the work of the processes on the path for each of many requests;
- with each other model, always busy, the time of a batch beyond its formula;
- if all clients send at the same time, once or whenever a batch with all of them is answered, the duration of the path
  for all of them, with a batch that waits for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from statistics import median

from bench import redbatch_bench
from bench.cluster import Cluster, ClusterError, Shape, cluster
from bench.simulation.cluster import simulate
from bench.simulation.figures import figures
from bench.simulation.setup import DEVICES, Device, RequestPath, Setup
from bench.simulation.traffic import Traffic, at_once, closed_loop
from gpuworker.policy.costs import Costs
from redbatch.bench.arrivals import poisson

SEED = 1
WARMUP_S = 1.0
CALIBRATION = ("--duration", "4s")
MANY = 64
BUSY = 16
ONE_SHOTS = 5
"""Repetitions of a load that occurs once; each figure is the median, because chance has a large share in it."""

PATIENT_MS = 2_000
FULL = 0.9
"""Minimum share of all clients in a batch that waits for all; below it the measurement is invalid."""

TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Formula:
    """A model whose batches take `base_ms` and, for each input after the first, `item_ms`."""

    base_ms: float
    item_ms: float

    @property
    def model(self) -> str:
        """The name of the model in a worker's settings."""
        return f"simulated:base_ms={self.base_ms:g},item_ms={self.item_ms:g}"

    @property
    def capacity(self) -> float:
        """Requests per second in full batches."""
        return 64_000 / (self.base_ms + 63 * self.item_ms)


@dataclass(frozen=True, slots=True)
class Case:
    """A load: its arguments of `redbatch bench`, its traffic in the simulator, and the load that measures its path.

    `simultaneous` is the number of clients that all send at the same time: once if `one_shot`, otherwise repeatedly.
    """

    name: str
    arguments: tuple[str, ...]
    traffic: Callable[[], Traffic]
    path_load: tuple[str, ...] = ("--clients", "1")
    simultaneous: int = 0
    one_shot: bool = False

    @property
    def repetitions(self) -> int:
        """Number of measurements."""
        return ONE_SHOTS if self.one_shot else 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures that `redbatch bench` reports for a load."""

    per_s: float
    mean_ms: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """One figure of a load, measured and predicted."""

    case: str
    figure: str
    real: float
    predicted: float

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the measured figure."""
        return self.predicted / self.real - 1


def _closed(clients: int, seconds: float) -> Case:
    def traffic() -> Traffic:
        return closed_loop(clients, WARMUP_S + seconds, WARMUP_S)

    return Case(f"{clients} clients", ("--clients", str(clients), "--duration", f"{seconds:g}s"), traffic)


def _open(share: float, seconds: float) -> Case:
    rate = round(share * DEAR_INPUTS.capacity)

    def traffic() -> Traffic:
        return Traffic(poisson(rate, Random(SEED)), WARMUP_S + seconds, WARMUP_S)  # noqa: S311 - no secrets

    load = ("--rate", str(rate))
    return Case(f"Poisson, {share:.0%}", (*load, "--duration", f"{seconds:g}s"), traffic, load)


def _at_once(requests: int) -> Case:
    arguments = ("--clients", str(requests), "--requests", str(requests), "--warmup", "0s")
    return Case(f"{requests} at once", arguments, lambda: at_once(requests), simultaneous=requests, one_shot=True)


DEAR_INPUTS = Formula(5, 3)
DEAR_BATCHES = Formula(60, 0.6)
"""A batch takes longer than the path of its requests, on slow machines too. Otherwise the machine would determine when
batches end, not the model; and the simulator models a machine only as one queue."""

CASES = {
    DEAR_INPUTS: {
        "0": (_closed(8, 5), _closed(64, 10), _open(0.6, 20), _open(0.85, 20), _at_once(500)),
        "auto": (_closed(8, 5), _open(0.6, 20)),
    },
    DEAR_BATCHES: {"0": (_closed(16, 5),), "auto": (replace(_closed(16, 5), simultaneous=16), _closed(100, 10))},
}
"""The loads by model and max_batch_wait_ms."""


def check() -> list[Prediction]:
    """Measures and predicts. Raises ClusterError when a cluster does not start."""
    loads = {case.path_load for waits in CASES.values() for cases in waits.values() for case in cases}
    with cluster(Shape("null")) as running:
        many = _measure(running, "--clients", str(MANY), *CALIBRATION)
        paths = {load: _measure_path(running, load, 1 / many.per_s) for load in loads}
    return [each for formula, waits in CASES.items() for each in _check(formula, waits, paths)]


def _check(
    formula: Formula, waits: Mapping[str, Sequence[Case]], paths: Mapping[tuple[str, ...], RequestPath]
) -> Iterator[Prediction]:
    """Yields the predictions for a model. The device is measured once, without a wait."""
    device: Device | None = None
    for wait, cases in waits.items():
        with cluster(Shape(formula.model, settings={"max_batch_wait_ms": wait})) as running:
            device = device or _measure_device(running, formula)
            for case in cases:
                measured = _measure(running, *case.arguments, repetitions=case.repetitions)
                path = paths[case.path_load]
                path = _measure_simultaneous_path(formula, case, path) if case.simultaneous else path
                setup = Setup(device, path, None if wait == "auto" else 0.0)
                yield from _predict(replace(case, name=f"{formula.model}, wait {wait}: {case.name}"), measured, setup)


def _measure_path(running: Cluster, load: tuple[str, ...], each_s: float) -> RequestPath:
    """Returns the path to the engine and back under a load, given the work (s) on the path for each request."""
    before = _engine_totals(running)
    measured = _measure(running, *load, *CALIBRATION)
    batches, _, seconds = (after - was for after, was in zip(_engine_totals(running), before, strict=True))
    one_way_s = max(0.0, measured.mean_ms / 1000 - seconds / batches - each_s) / 2
    return RequestPath(one_way_s, one_way_s, each_s / 2, each_s / 2)


def _measure_simultaneous_path(formula: Formula, case: Case, single: RequestPath) -> RequestPath:
    """Returns the path of clients that all send at the same time, given the path of a single request.

    A batch has the requests of all clients, so it starts after the last has arrived. If the clients send once, all
    requests start together: on average a client has its answer when half of the answers are out.

    Raises ClusterError: the batches had too few of the clients.
    """
    settings = {
        "max_batch_size": str(case.simultaneous),
        "max_batch_wait_ms": str(PATIENT_MS),
    }
    with cluster(Shape(formula.model, settings=settings)) as running:
        before = _engine_totals(running)
        measured = _measure(running, *case.arguments, repetitions=case.repetitions)
        batches, inputs, seconds = (after - was for after, was in zip(_engine_totals(running), before, strict=True))
    if inputs < FULL * batches * case.simultaneous:
        raise ClusterError(f"batches for all {case.simultaneous} clients had {inputs / batches:.0f} inputs on average")
    all_s = case.simultaneous / measured.per_s
    each_s = max(0.0, all_s - seconds / batches - single.in_s - single.out_s) / case.simultaneous
    out_each_s = 2 * (all_s - measured.mean_ms / 1000) / case.simultaneous if case.one_shot else each_s / 2
    return replace(single, in_each_s=max(0.0, each_s - out_each_s), out_each_s=out_each_s)


def _measure_device(running: Cluster, formula: Formula) -> Device:
    """Returns the device: its batches take longer than their formula, with a gap between them."""
    before = _engine_totals(running)
    measured = _measure(running, "--clients", str(BUSY), *CALIBRATION)
    batches, inputs, seconds = (after - was for after, was in zip(_engine_totals(running), before, strict=True))
    size = inputs / batches
    batch_s = seconds / batches
    gap_s = max(0.0, size / measured.per_s - batch_s)
    item_s = formula.item_ms / 1000
    return replace(DEVICES["simulated"], costs=Costs(batch_s - item_s * size, item_s), gap_s=gap_s)


def _engine_totals(running: Cluster) -> tuple[float, float, float]:
    """Returns the totals of the engine: batches, inputs, and seconds of inference."""
    names = ("redbatch_batch_size_count", "redbatch_batch_size_sum", "redbatch_batch_inference_seconds_sum")
    batches, inputs, seconds = (running.metric("worker", name) for name in names)
    return batches, inputs, seconds


def _measure(running: Cluster, *arguments: str, repetitions: int = 1) -> Measurement:
    """Returns the medians of the figures that `redbatch bench` measures in all repetitions."""
    runs = [_bench(running, *arguments) for _ in range(repetitions)]
    return Measurement(*(median(getattr(run, field.name) for run in runs) for field in fields(Measurement)))


def _bench(running: Cluster, *arguments: str) -> Measurement:
    measured = redbatch_bench.run(running.url, "--seed", str(SEED), *arguments)["measured"]
    latency = measured["latency_ms"]
    return Measurement(measured["requests_per_s"], latency["mean"], latency["p50"], latency["p95"])


def _predict(case: Case, real: Measurement, setup: Setup) -> Sequence[Prediction]:
    traffic = case.traffic()
    outcome = simulate(setup, traffic, SEED)
    until_s = traffic.until_s
    if traffic.warmup_s == 0:  # a fixed number of requests: the run ends with the last answer
        until_s = math.nextafter(max(each.answered_s or 0.0 for each in outcome.requests), math.inf)
    predicted = figures(outcome, traffic.warmup_s, until_s)
    return [
        Prediction(case.name, "requests/s", real.per_s, predicted.per_s),
        Prediction(case.name, "p50, ms", real.p50_ms, predicted.p50_ms),
        Prediction(case.name, "p95, ms", real.p95_ms, predicted.p95_ms),
    ]
