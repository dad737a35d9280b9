"""The GPUs of this host, as the driver tells of them: the worker process asks it, and never makes a CUDA context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

log = structlog.get_logger()

ALL = "all"


class Gpu(NamedTuple):
    """A GPU: its name for people, its UUID, its memory, and the version of its driver."""

    uuid: str
    name: str
    memory_bytes: int
    driver: str


NO_GPU = Gpu("", "", 0, "")


class NoGpu(Exception):
    """There is none to be used; the message says so in one line."""


def gpus() -> list[Gpu]:
    """Returns those of the host in the order of their bus, as CUDA has them too (see engine_host).

    By NVML, which comes with the driver: without it there are none, and other makers' GPUs are not seen.
    """
    import pynvml  # noqa: PLC0415 - a worker on a CPU needs none of it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.debug("no NVIDIA driver", reason=str(error))
        return []
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(
                str(pynvml.nvmlDeviceGetUUID(handle)),
                str(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver,
            )
            for handle in handles
        ]
    except pynvml.NVMLError as error:
        log.warning("the driver does not tell of its GPUs", reason=str(error))
        return []
    finally:
        pynvml.nvmlShutdown()


def visible(found: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """Returns those that a process sees, in the order in which it numbers them.

    Args:
        found: those of the host.
        variable: its CUDA_VISIBLE_DEVICES: indices or beginnings of UUIDs. As in CUDA, what follows one that there is
            not is not seen either.
    """
    if variable is None:
        return list(found)
    seen: list[Gpu] = []
    for part in map(str.strip, variable.split(",")):
        if part.isdigit():
            named = [found[int(part)]] if int(part) < len(found) else []
        else:
            named = [gpu for gpu in found if part and gpu.uuid.startswith(part)]
        if len(named) != 1 or named[0] in seen:
            break
        seen += named
    return seen


def devices_of(setting: str, device: str, seen: Sequence[Gpu]) -> list[str]:
    """Returns where engines run, each in a process of its own.

    Args:
        setting: `all`, names with commas between them, or nothing: the one `device`.
        device: as it is set.
        seen: the GPUs that this process sees.

    Raises:
        NoGpu: all are to be used, and there is none.
    """
    if not setting:
        return [device]
    if setting != ALL:
        return [part.strip() for part in setting.split(",")]
    if not seen:
        raise NoGpu("--devices all: no NVIDIA GPU is to be seen here; --device cpu uses the CPU")
    return [f"cuda:{index}" for index in range(len(seen))]


def gpu_of(device: str, seen: Sequence[Gpu]) -> Gpu:
    """Returns the GPU that a device of torch is, as `cuda:1`; NO_GPU for others, and where the driver tells nothing."""
    kind, _, index = device.partition(":")
    at = int(index or 0)
    return seen[at] if kind == "cuda" and at < len(seen) else NO_GPU
