"""The GPUs of this host as the driver reports them. The worker process queries it, and never creates a CUDA context."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import structlog

log = structlog.get_logger()

ALL = "all"
VISIBLE = "CUDA_VISIBLE_DEVICES"

_DEVICE_FILES = ("nvidia*", "nvhost*", "kfd", "dxg")
"""What a GPU may be used through: NVIDIA's driver, the same on a Jetson, AMD's driver, and WSL."""

MIG = "MIG-"
"""How the UUID of a MIG device (Multi-Instance GPU: a part of a GPU) begins, in NVML and in CUDA_VISIBLE_DEVICES."""

_MIG_OF_OLD_DRIVER = "MIG-GPU-"
"""How drivers before 470 named a MIG device: newer ones still understand that, and list it under another name."""


class Gpu(NamedTuple):
    """A GPU or a MIG device: its UUID, its product name, its memory in bytes, and the version of its driver."""

    uuid: str
    name: str
    memory_bytes: int
    driver: str

    @property
    def is_mig(self) -> bool:
        """Whether it is a MIG device. CUDA lets a process use only one (NVIDIA's MIG user guide)."""
        return self.uuid.startswith(MIG)


NO_GPU = Gpu("", "", 0, "")
_NO_GPU_VISIBLE = "no NVIDIA GPU is visible; --device cpu uses the CPU"


class NoGpuError(Exception):
    """No GPU can be used; the message says this in one line."""


def list_gpus() -> list[Gpu]:
    """Returns the GPUs of the host in the order of their bus, which engines use too (see ipc.engine_process).

    Instead of a GPU that is divided, the list has those of its MIG devices that this process may use. It comes from
    NVML, a part of the driver: without a driver it is empty, and it has no GPUs of other vendors.
    """
    import pynvml  # noqa: PLC0415 - a worker on a CPU does not need it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.debug("no NVIDIA driver", reason=str(error))
        return []
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        handles = [handle for gpu in gpus for handle in _mig_devices_of(gpu)]
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
        log.warning("cannot query the driver for GPUs", reason=str(error))
        return []
    finally:
        pynvml.nvmlShutdown()


def _mig_devices_of(gpu: object) -> list[object]:
    """Returns the handles of a GPU's MIG devices, or its own if it is not divided. Raises pynvml.NVMLError."""
    import pynvml  # noqa: PLC0415 - a worker on a CPU does not need it

    try:
        is_divided = pynvml.nvmlDeviceGetMigMode(gpu)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        is_divided = False
    if not is_divided:
        return [gpu]
    mig_devices = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        # Places without one, and in a container those of other containers.
        with suppress(pynvml.NVMLError_NotFound, pynvml.NVMLError_NoPermission):
            mig_devices.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return mig_devices


@cache
def _open_driver() -> None:
    """Opens NVML for the life of the process. Raises pynvml.NVMLError; it is tried again then."""
    import pynvml  # noqa: PLC0415 - a worker on a CPU does not need it

    pynvml.nvmlInit()


def used_memory_bytes(gpu: Gpu) -> int:
    """Returns the memory that is in use on a GPU, by all processes; 0 for NO_GPU, and if the driver does not say it."""
    if gpu is NO_GPU:
        return 0
    import pynvml  # noqa: PLC0415 - a worker on a CPU does not need it

    try:
        _open_driver()
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)  # each time: a GPU that was reset may have another one
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    except pynvml.NVMLError as error:
        log.debug("the driver does not report the memory in use", reason=str(error))
        return 0


def list_visible_gpus() -> list[Gpu]:
    """Returns the GPUs that this process sees, in the order in which it numbers them."""
    return visible_gpus(list_gpus(), os.environ.get(VISIBLE))


def name_mig_devices(visible: Sequence[Gpu], environment: MutableMapping[str, str]) -> None:
    """Has CUDA_VISIBLE_DEVICES name the visible GPUs if one is a MIG device: CUDA gives numbers to one of them only."""
    if any(gpu.is_mig for gpu in visible):
        environment[VISIBLE] = ",".join(gpu.uuid for gpu in visible)


def show_mig_device(device: str, environment: MutableMapping[str, str]) -> str:
    """Does what `show_only` does if CUDA_VISIBLE_DEVICES names a MIG device; else nothing, and returns `device`."""
    return show_only(device, environment) if MIG in environment.get(VISIBLE, "") else device


def show_only(device: str, environment: MutableMapping[str, str]) -> str:
    """Has CUDA see only the GPUs of an engine; returns its device by the numbers that CUDA gives then.

    CUDA must not have started in this process: it reads the variable once.

    Args:
        device: of the engine: `cuda:1`, or several, separated by commas. Another one changes nothing.
        environment: of this process.
    """
    if not device.startswith("cuda"):
        return device
    names = environment.get(VISIBLE, "").split(",")
    indices = [int(each.partition(":")[2] or 0) for each in device.split(",")]
    chosen = [names[index].strip() if index < len(names) and names[0] else str(index) for index in indices]
    environment[VISIBLE] = ",".join(chosen)
    return ",".join(f"cuda:{number}" for number in range(len(chosen)))


def visible_gpus(gpus: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """Returns the GPUs that a process sees, in the order in which it numbers them.

    Args:
        gpus: of the host.
        variable: its CUDA_VISIBLE_DEVICES: indices or prefixes of UUIDs. As in CUDA, an item that names no GPU hides
            all items after it. On a host with MIG devices an index names none: CUDA counts undivided GPUs.
    """
    counts_whole = any(gpu.is_mig for gpu in gpus)
    if variable is None:
        return list(gpus)
    visible: list[Gpu] = []
    for item in map(str.strip, variable.split(",")):
        if item.isdigit():
            named = [gpus[int(item)]] if int(item) < len(gpus) and not counts_whole else []
        else:
            named = [gpu for gpu in gpus if item and gpu.uuid.startswith(item)]
        if len(named) != 1 or named[0] in visible:
            break
        visible += named
    return visible


def parse_devices(setting: str) -> list[str]:
    """Returns the devices of a setting that separates them by commas; a number N is cuda:N."""
    return [f"cuda:{part}" if part.isdigit() else part for part in map(str.strip, setting.split(","))]


def engine_devices(setting: str, device: str, visible: Sequence[Gpu]) -> list[str]:
    """Returns the devices on which engines run, each in a separate process.

    Args:
        setting: `all`, names separated by commas, or empty: only `device`.
        device: as set.
        visible: the GPUs that this process sees.

    Raises:
        NoGpuError: `all` is set, and this process sees no GPU.
    """
    if not setting:
        return [device]
    if setting != ALL:
        return parse_devices(setting)
    if not visible:
        raise NoGpuError(f"--devices all: {_NO_GPU_VISIBLE}")
    return [f"cuda:{index}" for index in range(len(visible))]


def span(names: Sequence[str], visible: Sequence[Gpu]) -> str:
    """Returns the device of an engine that uses all of these. Raises NoGpuError: CUDA does not allow that."""
    if any(gpu_of(name, visible).is_mig for name in names):
        raise NoGpuError("--span: a process can use only one MIG device")
    return ",".join(names)


def check_devices(names: Sequence[str], option: str, visible: Sequence[Gpu]) -> None:
    """Checks that this process sees the GPUs that `option` names: in the engine, some libraries fall back to the CPU.

    Args:
        names: of the devices.
        option: as the user wrote it, with its value.
        visible: the GPUs that this process sees.

    Raises:
        NoGpuError: it does not see one.
    """
    for name in names:
        if name.startswith("cuda") and gpu_of(name, visible) is NO_GPU:
            last = f"cuda:{len(visible) - 1}"
            seen = (
                f"the GPUs visible here are cuda:0 to {last}" if len(visible) > 1 else "the only visible GPU is cuda:0"
            )
            raise NoGpuError(f"{option}: {seen if visible else _NO_GPU_VISIBLE}")


def lists_all(host: Sequence[Gpu], variable: str | None, dev: Path = Path("/dev")) -> bool:
    """Whether a process can use no GPU but those of the driver's list.

    The list has no GPUs of other vendors, and is empty in a container without NVML. It has MIG devices, but not under
    the names of old drivers.

    Args:
        host: the list (see `list_gpus`).
        variable: CUDA_VISIBLE_DEVICES of the process.
        dev: where device files are.
    """
    if _MIG_OF_OLD_DRIVER in (variable or "") and not any(_MIG_OF_OLD_DRIVER in gpu.uuid for gpu in host):
        return False
    return bool(host) or not any(found for pattern in _DEVICE_FILES for found in dev.glob(pattern))


def gpu_of(device: str, visible: Sequence[Gpu]) -> Gpu:
    """Returns the GPU of a torch device such as `cuda:1`, or the first of several (`cuda:0,cuda:1`).

    Returns NO_GPU for other devices, and if the driver reports none.
    """
    device = device.partition(",")[0]
    kind, _, index = device.partition(":")
    at = int(index or 0)
    return visible[at] if kind == "cuda" and at < len(visible) else NO_GPU
