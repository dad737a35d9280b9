"""Does the simulator predict a real cluster? Loads on `simulated:base_ms=5,item_ms=3`, and the same loads simulated.

What the simulator is told of this machine is measured before. With the `null` model: how long the way of a request is,
one at a time or at the rate of the load (processes that have slept wake up slowly), and how much time those on the way
need for each of many. With the simulated one, always busy: what a batch takes beyond its formula.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from bench.cluster import Cluster, Shape, cluster
from bench.simulation.cluster import simulate
from bench.simulation.figures import figures
from bench.simulation.setup import DEVICES, Device, Setup
from bench.simulation.setup import Path as Way
from bench.simulation.traffic import Traffic, at_once, closed_loop
from gpuworker.costs import Costs
from redbatch.bench.arrivals import poisson

MODEL = "simulated:base_ms=5,item_ms=3"
BASE_S, ITEM_S = 0.005, 0.003
CAPACITY = 64 / (BASE_S + 63 * ITEM_S)
SEED = 1
WARMUP_S = 1.0
CALIBRATION = ("--duration", "4s")
MANY = 64
BUSY = 16
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """A load: as `redbatch bench` is told of it, as the simulator is, and how the way is measured for it."""

    name: str
    arguments: tuple[str, ...]
    traffic: Callable[[], Traffic]
    way: tuple[str, ...] = ("--clients", "1")


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
    rate = round(share * CAPACITY)

    def traffic() -> Traffic:
        return Traffic(poisson(rate, Random(SEED)), WARMUP_S + seconds, WARMUP_S)  # noqa: S311 - no secrets

    load = ("--rate", str(rate))
    return Case(f"Poisson, {share:.0%}", (*load, "--duration", f"{seconds:g}s"), traffic, load)


def _at_once(requests: int) -> Case:
    arguments = ("--clients", str(requests), "--requests", str(requests), "--warmup", "0s")
    return Case(f"{requests} at once", arguments, lambda: at_once(requests))


CASES = (_closed(8, 5), _closed(64, 10), _open(0.6, 20), _open(0.85, 20), _at_once(500))


def check() -> list[Compared]:
    """Measures and predicts. Raises ClusterError when a cluster does not start."""
    with cluster(Shape("null")) as running:
        many = _measure(running, "--clients", str(MANY), *CALIBRATION)
        ways = {way: _way(running, way, 1 / many["requests_per_s"]) for way in {case.way for case in CASES}}
    found: list[Compared] = []
    with cluster(Shape(MODEL)) as running:
        device = _device(running)
        for case in CASES:
            found += _compared(case, _measure(running, *case.arguments), Setup(device, ways[case.way]))
    return found


def _way(running: Cluster, load: tuple[str, ...], each_s: float) -> Way:
    """Returns the way to the engine and back under a load, given how long it is taken up by each request."""
    before = _engine(running)
    measured = _measure(running, *load, *CALIBRATION)
    batches, _, seconds = (after - was for after, was in zip(_engine(running), before, strict=True))
    one_way_s = max(0.0, measured["latency_ms"]["mean"] / 1000 - seconds / batches - each_s) / 2
    return Way(one_way_s, one_way_s, each_s / 2, each_s / 2)


def _device(running: Cluster) -> Device:
    """Returns the device: its batches take longer than their formula, and there is a gap between them."""
    before = _engine(running)
    measured = _measure(running, "--clients", str(BUSY), *CALIBRATION)
    batches, inputs, seconds = (after - was for after, was in zip(_engine(running), before, strict=True))
    size = inputs / batches
    batch_s = seconds / batches
    gap_s = max(0.0, size / measured["requests_per_s"] - batch_s)
    fixed_s = batch_s - ITEM_S * size
    return replace(DEVICES["simulated"], costs=Costs(fixed_s, ITEM_S), gap_s=gap_s)


def _engine(running: Cluster) -> tuple[float, float, float]:
    """Returns how many batches ran, of how many inputs, for how many seconds."""
    names = ("redbatch_batch_size_count", "redbatch_batch_size_sum", "redbatch_batch_inference_seconds_sum")
    batches, inputs, seconds = (running.metric("worker", name) for name in names)
    return batches, inputs, seconds


def _measure(running: Cluster, *arguments: str) -> dict[str, Any]:
    """Returns what `redbatch bench` measured."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "redbatch", "bench", running.url, "--seed", str(SEED), "--out", str(out)]
        subprocess.run([*command, *arguments], check=True, capture_output=True)
        measured: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["measured"]
    return measured


def _compared(case: Case, real: dict[str, Any], setup: Setup) -> Sequence[Compared]:
    traffic = case.traffic()
    outcome = simulate(setup, traffic, SEED)
    until_s = traffic.until_s
    if traffic.warmup_s == 0:  # then it is about so many requests, and it ends with the last answer
        until_s = math.nextafter(max(each.answered_s or 0.0 for each in outcome.requests), math.inf)
    predicted = figures(outcome, traffic.warmup_s, until_s)
    latency = real["latency_ms"]
    return [
        Compared(case.name, "requests/s", real["requests_per_s"], predicted.per_s),
        Compared(case.name, "p50, ms", latency["p50"], predicted.p50_ms),
        Compared(case.name, "p95, ms", latency["p95"], predicted.p95_ms),
    ]
