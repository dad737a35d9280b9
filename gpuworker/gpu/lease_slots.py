"""Which slots of a pool of GPUs a worker may hold, and on which device its engine then runs. Pure.

A slot is named `<GPU>.<place>`: with two workers on each of two GPUs they are 0.0, 1.0, 0.1 and 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuworker.gpu.devices import Gpu, NoGpuError, gpu_of

ANY = ("auto", "cuda")


def turn_devices(devices: Sequence[str], gpus: int) -> list[str]:
    """Returns the devices of a worker that holds a GPU for one batch at a time; it has an engine on each.

    Args:
        devices: as set. `auto` and `cuda` alone stand for every GPU of the pool.
        gpus: number of GPUs in the pool.

    Raises:
        NoGpuError: a device is not in the pool.
    """
    if len(devices) == 1 and devices[0] in ANY:
        return [f"cuda:{index}" for index in range(gpus)]
    named = ["cuda:0" if device in ANY else device for device in devices]
    for device in named:
        if (_index(device) or 0) >= gpus:
            raise NoGpuError(f"--devices: {device} is not in the pool of {gpus} (--gpu-lease-gpus)")
    return named


def slots_of(gpus: int, per_gpu: int, device: str) -> list[str]:
    """Returns the slots that a worker accepts, in order of preference: those with an unshared GPU first.

    Args:
        gpus: number of GPUs in the pool.
        per_gpu: maximum number of workers that hold one GPU at once.
        device: as set; only slots of this GPU are accepted if it names one.
    """
    required = _index(device)
    return [f"{gpu}.{place}" for place in range(per_gpu) for gpu in range(gpus) if required in (None, gpu)]


def device_of(slot: str, device: str) -> str:
    """Returns the device of an engine whose worker holds this slot: the slot's GPU, unless another device is set."""
    return f"cuda:{slot.partition('.')[0]}" if device in ANY else device


def lock_of(slot: str, device: str, pool: str, gpus: Sequence[Gpu]) -> str:
    """Returns the name under which a slot is locked on its host.

    It contains the GPU's UUID if the driver reports it: two containers may number a GPU differently, and have different
    names for their host. Otherwise it consists of pool and slot.
    """
    gpu = gpu_of(device, gpus)
    return f"{gpu.uuid}.{slot.partition('.')[2]}" if gpu.uuid else f"{pool}-{slot}"


def _index(device: str) -> int | None:
    return int(device.partition(":")[2]) if device.startswith("cuda:") else None
