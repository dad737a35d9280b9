"""NVIDIA's library NVML, played by Python functions under its names: the package `pynvml` calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pynvml

GIB = 2**30
NOT_SUPPORTED, NOT_FOUND = pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND


@dataclass
class FakeGpu:
    """A GPU or a MIG device.

    Attributes:
        mig_devices: by their places, None where there is none; None: the GPU cannot be divided.
        is_divided: whether MIG is on.
    """

    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int = 0
    mig_devices: Sequence[FakeGpu | None] | None = None
    is_divided: bool = False


@dataclass
class FakeNvml:
    """The library. Handles are the places of GPUs and MIG devices in a list, counted from one."""

    gpus: Sequence[FakeGpu]
    _handles: list[FakeGpu] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Raises AttributeError: the driver does not have the function."""
        raise AttributeError(name)

    def _set(self, pointer: Any, gpu: FakeGpu) -> int:  # noqa: ANN401 - what byref() returns
        if not any(each is gpu for each in self._handles):
            self._handles.append(gpu)
        number = next(at for at, each in enumerate(self._handles, start=1) if each is gpu)
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))[0] = number
        return int(pynvml.NVML_SUCCESS)

    def _gpu(self, handle: Any) -> FakeGpu:  # noqa: ANN401 - a pointer of ctypes
        number = ctypes.cast(handle, ctypes.c_void_p).value
        assert number is not None
        return self._handles[number - 1]

    def nvmlInitWithFlags(self, _flags: int) -> int:  # noqa: N802 - as the library
        """Starts it."""
        return int(pynvml.NVML_SUCCESS)

    def nvmlShutdown(self) -> int:  # noqa: N802
        """Ends it."""
        return int(pynvml.NVML_SUCCESS)

    def nvmlSystemGetDriverVersion(self, buffer: Any, _size: Any) -> int:  # noqa: ANN401, N802
        """Writes the version of the driver."""
        buffer.value = b"570.1"
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: ANN401, N802
        """Writes the number of GPUs; MIG devices do not count."""
        count._obj.value = len(self.gpus)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:  # noqa: ANN401, N802
        """Writes the handle of a GPU."""
        return self._set(device, self.gpus[index.value])

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:  # noqa: ANN401, N802
        """Writes the handle of a GPU or of a MIG device."""
        everything = [*self.gpus, *(each for gpu in self.gpus for each in gpu.mig_devices or () if each)]
        found = [each for each in everything if each.uuid.encode() == uuid.value]
        return self._set(device, found[0]) if found else int(NOT_FOUND)

    def nvmlDeviceGetUUID(self, device: Any, buffer: Any, _size: Any) -> int:  # noqa: ANN401, N802
        """Writes the UUID."""
        buffer.value = self._gpu(device).uuid.encode()
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetName(self, device: Any, buffer: Any, _size: Any) -> int:  # noqa: ANN401, N802
        """Writes the name of the product."""
        buffer.value = self._gpu(device).name.encode()
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:  # noqa: ANN401, N802
        """Writes the memory."""
        gpu, written = self._gpu(device), memory._obj
        written.total, written.used, written.free = gpu.memory_bytes, gpu.used_bytes, gpu.memory_bytes - gpu.used_bytes
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMigMode(self, device: Any, current: Any, pending: Any) -> int:  # noqa: ANN401, N802
        """Writes whether a GPU is divided."""
        gpu = self._gpu(device)
        if gpu.mig_devices is None:
            return int(NOT_SUPPORTED)
        current._obj.value = pending._obj.value = int(gpu.is_divided)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:  # noqa: ANN401, N802
        """Writes how many MIG devices there may be."""
        count._obj.value = len(self._gpu(device).mig_devices or ())
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, mig_device: Any) -> int:  # noqa: ANN401, N802
        """Writes the handle of the MIG device at a place."""
        found = (self._gpu(device).mig_devices or ())[index.value]
        return int(NOT_FOUND) if found is None else self._set(mig_device, found)


def divided_gpu(letter: str, places: str) -> FakeGpu:
    """Returns an H100 with a MIG device of 10 GB for each place whose character is not a dash."""
    mig_devices = [
        None if each == "-" else FakeGpu(f"MIG-{letter}{each}-5678", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB)
        for each in places
    ]
    return FakeGpu(f"GPU-{letter}", "NVIDIA H100 80GB HBM3", 80 * GIB, mig_devices=mig_devices, is_divided=True)


@contextmanager
def fake_nvml(*gpus: FakeGpu) -> Iterator[None]:
    """Has `pynvml` use the library in the block, on a host with these GPUs."""
    with patch.object(pynvml, "nvmlLib", FakeNvml(gpus)), patch.dict(pynvml._nvmlGetFunctionPointer_cache, clear=True):
        yield
