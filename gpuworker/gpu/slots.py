"""Which slots of a pool of GPUs a worker may have, and where its engine then runs. Pure.

A slot is called `<GPU>.<place>`: with two workers on each of two GPUs they are 0.0, 1.0, 0.1 and 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuworker.gpu.devices import Gpu, gpu_of

ANY = ("auto", "cuda")


def slots_of(gpus: int, per_gpu: int, device: str, *, fixed: bool) -> list[str]:
    """Returns the slots that would do, in order of preference: those that have a GPU for themselves first.

    Args:
        gpus: in the pool.
        per_gpu: workers that may have one at once.
        device: as it is set.
        fixed: whether the model is loaded before a slot is had, so that it has to be one of a certain GPU.
    """
    own = 0 if fixed and device in ANY else _index(device)
    return [f"{gpu}.{place}" for place in range(per_gpu) for gpu in range(gpus) if own in (None, gpu)]


def device_of(slot: str, device: str) -> str:
    """Returns where the engine runs whose worker has this slot: on its GPU, unless it is set to something else."""
    return f"cuda:{slot.partition('.')[0]}" if device in ANY else device


def lock_of(slot: str, device: str, pool: str, seen: Sequence[Gpu]) -> str:
    """Returns the name under which a slot is locked on its host.

    That is by the GPU's UUID, where the driver tells it: two containers may number it differently, and call their host
    by other names. Otherwise it is by pool and slot.
    """
    gpu = gpu_of(device, seen)
    return f"{gpu.uuid}.{slot.partition('.')[2]}" if gpu.uuid else f"{pool}-{slot}"


def _index(device: str) -> int | None:
    return int(device.partition(":")[2]) if device.startswith("cuda:") else None
