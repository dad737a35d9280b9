"""The simulated clusters: workers on CPUs, with measured figures, and on GPUs, with assumed ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import results
from bench.autoscaling.cluster import Scenario
from bench.autoscaling.jobs import TextMix
from bench.autoscaling.worker_profile import measure
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import DEVICES, MAX_SIZE, PATHS, Device, RequestPath
from bench.tables import median
from gpuworker.policy.costs import Costs
from redbatch.bench.texts import MIXED_MEAN_TOKENS, SHORT_WORDS, SPECIAL_TOKENS

NIGHT_LOAD = 0.45
"""The night's load as a share of one worker's capacity: the peak needs at least four and a half workers."""

CLIENTS = 256
POD_S = 5.0
"""Assumed time to schedule a pod and start its container, with the image on the node."""

GPU_START_S = 60.0
"""Assumed time with the image on the node, including CUDA and the loading of the model. Without the image, or without
the node, it takes minutes."""

SHORT_MEAN_TOKENS = statistics.mean(SHORT_WORDS) + SPECIAL_TOKENS
STARTS_S = (10.0, 60.0, 300.0)
STOP_S = 5.0
REQUESTS = 4_000
CPU, GPU = "CPU", "GPU"


@dataclass(frozen=True, slots=True)
class Measurements:
    """Results of the benchmarks: rates with MiniLM for mixed and short texts, and startup times of processes (s).

    Each comes from the machine that its results file names.
    """

    texts_per_s: float
    short_per_s: float
    gateway_cpu_s: float
    gateway_start_s: float
    worker_start_s: float

    @classmethod
    def from_results(cls, bench: Mapping[str, Any], starts: Mapping[str, Sequence[float]]) -> Measurements:
        """Reads the results of `make bench`. Raises LookupError: the real model was not measured."""
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


def scenarios(measured: Measurements) -> dict[str, Scenario]:
    """Returns the scenario of each device."""
    shared = {"gateway_cpu_s": measured.gateway_cpu_s, "gateway_start_s": POD_S + measured.gateway_start_s}
    cpu_start_s = POD_S + measured.worker_start_s
    return {
        CPU: _scenario(with_capacity(DEVICES["minilm-cpu"], measured.texts_per_s), RequestPath(), cpu_start_s, shared),
        GPU: _scenario(DEVICES["gpu"], PATHS["gpu"], GPU_START_S, shared),
    }


def job_texts(measured: Measurements, by_device: Mapping[str, Scenario]) -> dict[str, tuple[TextMix, ...]]:
    """Returns the text mixes of jobs, with the rate of a worker of each device.

    Short texts on a GPU are not simulated: their rate is that of full batches.
    """
    gpu = DEVICES["gpu"]
    short_per_s = {
        CPU: measured.short_per_s,
        GPU: MAX_SIZE / gpu.costs.seconds(MAX_SIZE * SHORT_MEAN_TOKENS),
    }
    return {
        device: (
            TextMix("mixed", MIXED_MEAN_TOKENS, by_device[device].profile.inputs_per_s, DEVICES[name].max_tokens),
            TextMix("short", SHORT_MEAN_TOKENS, short_per_s[device], DEVICES[name].max_tokens),
        )
        for device, name in ((CPU, "minilm-cpu"), (GPU, "gpu"))
    }


def with_capacity(device: Device, inputs_per_s: float) -> Device:
    """Returns the device with all batch times scaled so that its capacity is `inputs_per_s`."""
    factor = capacity_of(device) / inputs_per_s
    return replace(device, costs=Costs(device.costs.fixed_s * factor, device.costs.token_s * factor))


def read_measurements(starts: Mapping[str, Sequence[float]]) -> Measurements:
    """Returns the measurements of bench/results/bench.json, with these startup times (s)."""
    return Measurements.from_results(results.read(), starts)


def with_large_requests(scenario: Scenario, inputs: int) -> Scenario:
    """Returns the scenario with `inputs` texts in each request and the same number of texts per second."""
    return replace(scenario, inputs=inputs, night_per_s=scenario.night_per_s / inputs)


def _scenario(device: Device, path: RequestPath, start_s: float, shared: Mapping[str, float]) -> Scenario:
    profile = measure(device, path, REQUESTS)
    return Scenario(
        profile,
        NIGHT_LOAD * profile.inputs_per_s,
        tokens=MIXED_MEAN_TOKENS,
        worker_start_s=start_s,
        gateway_cpu_s=shared["gateway_cpu_s"],
        gateway_start_s=shared["gateway_start_s"],
        stop_s=STOP_S,
    )
