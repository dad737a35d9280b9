"""Does the simulator predict a real cluster? Loads on models that take a time by formula, and the same loads simulated.

What the simulator is told of this machine is measured before. With the `null` model: how long the way of a request is,
one at a time or at the rate of the load (processes that have slept wake up slowly), and how much time those on the way
need for each of many. With each other model, always busy: what a batch takes beyond its formula. And where all clients
ask at the same time, once or whenever a batch that has them all is answered: how long the way is for so many, with a
batch that waits for all of them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from statistics import median

from bench.cluster import Cluster, ClusterError, Shape, cluster
from bench.simulation.cluster import simulate
from bench.simulation.figures import figures
from bench.simulation.setup import CLAIM_WINDOW, DEVICES, Device, Setup
from bench.simulation.setup import Path as Way
from bench.simulation.traffic import Traffic, at_once, closed_loop
from gpuworker.policy.costs import Costs
from redbatch.bench.arrivals import poisson

SEED = 1
WARMUP_S = 1.0
CALIBRATION = ("--duration", "4s")
MANY = 64
BUSY = 16
ONE_SHOTS = 5
"""What happens once is measured so often, each figure by its median: a fair share of it is chance."""

PATIENT_MS = 2_000
FULL = 0.9
"""A batch that waits for all has so many of them at least, or the measurement is none."""

TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Formula:
    """A model whose batches take `base_ms` and, for each input after the first, `item_ms`."""

    base_ms: float
    item_ms: float

    @property
    def model(self) -> str:
        """Its name for a worker."""
        return f"simulated:base_ms={self.base_ms:g},item_ms={self.item_ms:g}"

    @property
    def capacity(self) -> float:
        """Requests a second in full batches."""
        return 64_000 / (self.base_ms + 63 * self.item_ms)


@dataclass(frozen=True, slots=True)
class Case:
    """A load: as `redbatch bench` is told of it, as the simulator is, and how the way is measured for it.

    `together` are the clients that all ask at the same time: `once`, or again and again.
    """

    name: str
    arguments: tuple[str, ...]
    traffic: Callable[[], Traffic]
    way: tuple[str, ...] = ("--clients", "1")
    together: int = 0
    once: bool = False

    @property
    def times(self) -> int:
        """How often it is measured."""
        return ONE_SHOTS if self.once else 1


@dataclass(frozen=True, slots=True)
class Measured:
    """What `redbatch bench` says of a load."""

    per_s: float
    mean_ms: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of a load: measured, and predicted."""

    case: str
    figure: str
    real: float
    predicted: float

    @property
    def error(self) -> float:
        """How far the prediction is off, relative to what was measured."""
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
    return Case(f"{requests} at once", arguments, lambda: at_once(requests), together=requests, once=True)


DEAR_INPUTS = Formula(5, 3)
DEAR_BATCHES = Formula(60, 0.6)
"""A batch takes longer than the way of as many requests, on slow machines too: otherwise the machine would say when
batches end, not the model, and of a machine the simulator knows no more than one line of waiting."""

CASES = {
    DEAR_INPUTS: {
        "0": (_closed(8, 5), _closed(64, 10), _open(0.6, 20), _open(0.85, 20), _at_once(500)),
        "auto": (_closed(8, 5), _open(0.6, 20)),
    },
    DEAR_BATCHES: {"0": (_closed(16, 5),), "auto": (replace(_closed(16, 5), together=16), _closed(100, 10))},
}
"""By model and max_batch_wait_ms."""


def check() -> list[Compared]:
    """Measures and predicts. Raises ClusterError when a cluster does not start."""
    loads = {case.way for waits in CASES.values() for cases in waits.values() for case in cases}
    with cluster(Shape("null")) as running:
        many = _measure(running, "--clients", str(MANY), *CALIBRATION)
        ways = {load: _way(running, load, 1 / many.per_s) for load in loads}
    return [each for formula, waits in CASES.items() for each in _check(formula, waits, ways)]


def _check(
    formula: Formula, waits: Mapping[str, Sequence[Case]], ways: Mapping[tuple[str, ...], Way]
) -> Iterator[Compared]:
    """Yields the figures of a model. The device is measured once, without a wait."""
    device: Device | None = None
    for wait, cases in waits.items():
        with cluster(Shape(formula.model, settings={"max_batch_wait_ms": wait})) as running:
            device = device or _device(running, formula)
            for case in cases:
                measured = _measure(running, *case.arguments, times=case.times)
                way = _way_of_all(formula, case, ways[case.way]) if case.together else ways[case.way]
                setup = Setup(device, way, None if wait == "auto" else 0.0)
                yield from _compared(replace(case, name=f"{formula.model}, wait {wait}: {case.name}"), measured, setup)


def _way(running: Cluster, load: tuple[str, ...], each_s: float) -> Way:
    """Returns the way to the engine and back under a load, given how long it is taken up by each request."""
    before = _engine(running)
    measured = _measure(running, *load, *CALIBRATION)
    batches, _, seconds = (after - was for after, was in zip(_engine(running), before, strict=True))
    one_way_s = max(0.0, measured.mean_ms / 1000 - seconds / batches - each_s) / 2
    return Way(one_way_s, one_way_s, each_s / 2, each_s / 2)


def _way_of_all(formula: Formula, case: Case, alone: Way) -> Way:
    """Returns the way of clients that all ask at the same time. A batch has them all, and so it begins after the last.

    Of those that ask once, all begin together: on average they have their answers when half of the answers are out.
    """
    settings = {
        "max_batch_size": str(case.together),
        "max_batch_wait_ms": str(PATIENT_MS),
        "claim_window": str(max(case.together, CLAIM_WINDOW)),
    }
    with cluster(Shape(formula.model, settings=settings)) as running:
        before = _engine(running)
        measured = _measure(running, *case.arguments, times=case.times)
        batches, inputs, seconds = (after - was for after, was in zip(_engine(running), before, strict=True))
    if inputs < FULL * batches * case.together:
        raise ClusterError(f"batches that should have had all {case.together} had {inputs / batches:.0f} on average")
    all_s = case.together / measured.per_s
    each_s = max(0.0, all_s - seconds / batches - alone.in_s - alone.out_s) / case.together
    out_each_s = 2 * (all_s - measured.mean_ms / 1000) / case.together if case.once else each_s / 2
    return replace(alone, in_each_s=max(0.0, each_s - out_each_s), out_each_s=out_each_s)


def _device(running: Cluster, formula: Formula) -> Device:
    """Returns the device: its batches take longer than their formula, and there is a gap between them."""
    before = _engine(running)
    measured = _measure(running, "--clients", str(BUSY), *CALIBRATION)
    batches, inputs, seconds = (after - was for after, was in zip(_engine(running), before, strict=True))
    size = inputs / batches
    batch_s = seconds / batches
    gap_s = max(0.0, size / measured.per_s - batch_s)
    item_s = formula.item_ms / 1000
    return replace(DEVICES["simulated"], costs=Costs(batch_s - item_s * size, item_s), gap_s=gap_s)


def _engine(running: Cluster) -> tuple[float, float, float]:
    """Returns how many batches ran, of how many inputs, for how many seconds."""
    names = ("redbatch_batch_size_count", "redbatch_batch_size_sum", "redbatch_batch_inference_seconds_sum")
    batches, inputs, seconds = (running.metric("worker", name) for name in names)
    return batches, inputs, seconds


def _measure(running: Cluster, *arguments: str, times: int = 1) -> Measured:
    """Returns what `redbatch bench` measured; the medians, where it does so several times."""
    found = [_bench(running, *arguments) for _ in range(times)]
    return Measured(*(median(getattr(each, field.name) for each in found) for field in fields(Measured)))


def _bench(running: Cluster, *arguments: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "redbatch", "bench", running.url, "--seed", str(SEED), "--out", str(out)]
        subprocess.run([*command, *arguments], check=True, capture_output=True)
        measured = json.loads(out.read_text(encoding="utf-8"))["measured"]
    latency = measured["latency_ms"]
    return Measured(measured["requests_per_s"], latency["mean"], latency["p50"], latency["p95"])


def _compared(case: Case, real: Measured, setup: Setup) -> Sequence[Compared]:
    traffic = case.traffic()
    outcome = simulate(setup, traffic, SEED)
    until_s = traffic.until_s
    if traffic.warmup_s == 0:  # then it is about so many requests, and it ends with the last answer
        until_s = math.nextafter(max(each.answered_s or 0.0 for each in outcome.requests), math.inf)
    predicted = figures(outcome, traffic.warmup_s, until_s)
    return [
        Compared(case.name, "requests/s", real.per_s, predicted.per_s),
        Compared(case.name, "p50, ms", real.p50_ms, predicted.p50_ms),
        Compared(case.name, "p95, ms", real.p95_ms, predicted.p95_ms),
    ]
