"""The processes that `redbatch up` and `redbatch tune` start: command lines and environments."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuworker.gpu.devices import Gpu
from gpuworker.settings import WorkerSettings
from redbatch.variables import VARIABLES_CHECKED
from shared.model_names import DEFAULT_MODEL, queue_slug
from shared.process.settings import variable_of

SettingValues = dict[str, str]
"""Values of settings by name, as text."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process: its name in the log, its command line and environment, and the file descriptors it inherits."""

    name: str
    command: list[str]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()


def with_up_defaults(overrides: SettingValues) -> SettingValues:
    """Returns the user's settings, with the defaults of `up` where they differ from those of separate processes."""
    defaults = {
        # No monitoring scrapes fixed ports of a cluster in a terminal, and two workers cannot share a port.
        "admin_port": "0",
        # No load balancer has to remove the gateways before they drain.
        "drain_delay_s": "0",
        "queue": queue_slug(overrides.get("model", DEFAULT_MODEL)),
    }
    return defaults | overrides


def gateway_specs(
    count: int, settings: SettingValues, listener: int, environment: Mapping[str, str]
) -> list[ChildSpec]:
    """Returns the gateways. All of them accept connections from `listener`, the descriptor of one listening socket."""
    return [
        ChildSpec(
            name=f"gateway-{number}",
            command=_command("gateway", "--listen-fd", str(listener)),
            environment=_environment(environment, settings, offset=number - 1),
            descriptors=(listener,),
        )
        for number in range(1, count + 1)
    ]


def assign_gpus(count: int, worker: WorkerSettings, gpus: Sequence[Gpu]) -> list[str]:
    """Returns the UUID of the GPU of each worker, in turn; empty if the workers are not spread over GPUs.

    They are not if the user has set a device, if leases decide which worker has a GPU, or if there is only one GPU.

    Args:
        count: number of workers.
        worker: their settings.
        gpus: the GPUs that this process sees.
    """
    chosen = worker.device != "auto" or worker.devices or worker.gpu_lease != "off"
    if chosen or min(count, len(gpus)) <= 1:
        return []
    return [gpus[number % len(gpus)].uuid for number in range(count)]


def worker_specs(
    count: int,
    settings: SettingValues,
    environment: Mapping[str, str],
    *,
    gateways: int = 0,
    gpu_uuids: Sequence[str] = (),
) -> list[ChildSpec]:
    """Returns the workers. If admin ports are consecutive, the first `gateways` ports belong to the gateways.

    Each worker sees only its GPU of `gpu_uuids`, so that `auto` is that GPU in any library; without them, all GPUs.
    """
    specs: list[ChildSpec] = []
    for number in range(1, count + 1):
        visible = {"CUDA_VISIBLE_DEVICES": gpu_uuids[number - 1]} if gpu_uuids else {}
        worker_settings = dict(settings)
        if "worker_id" in worker_settings and count > 1:
            worker_settings["worker_id"] = f"{worker_settings['worker_id']}-{number}"
        specs.append(
            ChildSpec(
                name=f"worker-{number}",
                command=_command("worker"),
                environment=_environment(environment, worker_settings, offset=gateways + number - 1) | visible,
            )
        )
    return specs


def _command(*arguments: str) -> list[str]:
    # -P: Python must not import from the user's current folder.
    return [sys.executable, "-P", "-m", "redbatch", *arguments]


def _environment(base: Mapping[str, str], settings: SettingValues, *, offset: int) -> dict[str, str]:
    """Returns the environment of a child. A fixed admin port is the first of consecutive ports: `offset` is added."""
    child_settings = dict(settings)
    port = child_settings["admin_port"]
    if port.isdecimal() and port != "0":
        child_settings["admin_port"] = str(int(port) + offset)
    return {**base, VARIABLES_CHECKED: "1", **{variable_of(name): value for name, value in child_settings.items()}}
