"""Which clusters are simulated: workers on CPUs, as measured here, and on GPUs, as assumed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import results
from bench.autoscaling.cluster import Scene
from bench.autoscaling.jobs import Texts
from bench.autoscaling.station import measure
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import DEVICES, MAX_SIZE, PATHS, Device, Path
from bench.tables import median
from gpuworker.policy.costs import Costs
from redbatch.bench.texts import MIXED_MEAN_TOKENS, SHORT_WORDS, SPECIAL_TOKENS

NIGHT = 0.45
"""The night's load as a share of what one worker can do: the peak needs four and a half, at the least."""

CLIENTS = 256
POD_S = 5.0
"""Assumed: to schedule a pod and start its container, with the image on the node."""

GPU_START_S = 60.0
"""Assumed: the image on the node, CUDA and a model that loads. Without the image, or the node, it is minutes."""

SHORT_MEAN_TOKENS = statistics.mean(SHORT_WORDS) + SPECIAL_TOKENS
STARTS_S = (10.0, 60.0, 300.0)
STOP_S = 5.0
REQUESTS = 4_000
CPU, GPU = "CPU", "GPU"


@dataclass(frozen=True, slots=True)
class Measured:
    """What the benchmarks found: with MiniLM, mixed texts and short ones, and the starts of processes (s).

    Each on the machine of its own results.
    """

    texts_per_s: float
    short_per_s: float
    gateway_cpu_s: float
    gateway_start_s: float
    worker_start_s: float

    @classmethod
    def of(cls, bench: Mapping[str, Any], starts: Mapping[str, Sequence[float]]) -> Measured:
        """Reads `make bench`'s results. Raises LookupError: the real model was not measured."""
        rows = bench["parts"]["real"]["tables"]["real"]
        mixed, short = (
            next(each for each in rows if each["of"] == {"mix": mix, "clients": CLIENTS}) for mix in ("mixed", "short")
        )
        return cls(
            median(mixed, "requests_per_s"),
            median(short, "requests_per_s"),
            median(mixed, "cpu_us.gateway") / 1e6,
            statistics.median(starts["gateway"]),
            statistics.median(starts["worker"]),
        )


def scenes(measured: Measured) -> dict[str, Scene]:
    """Returns both."""
    shared = {"gateway_cpu_s": measured.gateway_cpu_s, "gateway_start_s": POD_S + measured.gateway_start_s}
    cpu_start_s = POD_S + measured.worker_start_s
    return {
        CPU: _scene(as_fast(DEVICES["minilm-cpu"], measured.texts_per_s), Path(), cpu_start_s, shared),
        GPU: _scene(DEVICES["gpu"], PATHS["gpu"], GPU_START_S, shared),
    }


def of_jobs(measured: Measured, found: Mapping[str, Scene]) -> dict[str, tuple[Texts, ...]]:
    """Returns the texts that jobs may be of, as fast as a worker of each device does them.

    Short ones on a GPU, which nobody simulates, are in full batches.
    """
    gpu = DEVICES["gpu"]
    short_per_s = {
        CPU: measured.short_per_s,
        GPU: MAX_SIZE / gpu.costs.seconds(MAX_SIZE * SHORT_MEAN_TOKENS),
    }
    return {
        device: (
            Texts("mixed", MIXED_MEAN_TOKENS, found[device].station.inputs_per_s, DEVICES[name].max_tokens),
            Texts("short", SHORT_MEAN_TOKENS, short_per_s[device], DEVICES[name].max_tokens),
        )
        for device, name in ((CPU, "minilm-cpu"), (GPU, "gpu"))
    }


def as_fast(device: Device, inputs_per_s: float) -> Device:
    """Returns a device that is slower or faster throughout, so that it has this capacity."""
    times = capacity_of(device) / inputs_per_s
    return replace(device, costs=Costs(device.costs.fixed_s * times, device.costs.token_s * times))


def read_measured(starts: Mapping[str, Sequence[float]]) -> Measured:
    """Returns what bench/results/bench.json says, with these starts."""
    return Measured.of(results.read(), starts)


def of_many(scene: Scene, inputs: int) -> Scene:
    """Returns the same texts a second, so many in each request."""
    return replace(scene, inputs=inputs, night_per_s=scene.night_per_s / inputs)


def _scene(device: Device, path: Path, start_s: float, shared: Mapping[str, float]) -> Scene:
    station = measure(device, path, REQUESTS)
    return Scene(
        station,
        NIGHT * station.inputs_per_s,
        tokens=MIXED_MEAN_TOKENS,
        worker_start_s=start_s,
        gateway_cpu_s=shared["gateway_cpu_s"],
        gateway_start_s=shared["gateway_start_s"],
        stop_s=STOP_S,
    )
