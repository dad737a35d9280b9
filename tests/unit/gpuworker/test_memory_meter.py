"""How much memory an engine has, and how much of its GPU's is in use."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from gpuworker import memory_meter
from gpuworker.consumer import worker_status
from gpuworker.consumer.inflight import InFlightEntries
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.gpu import devices
from gpuworker.gpu.devices import Gpu
from gpuworker.ipc.messages import Ready
from gpuworker.memory_meter import MemoryMeter
from gpuworker.settings import WorkerSettings
from shared.process.tasks import cancel_and_wait
from tests.waiting import wait_until

USED_BYTES = 3 * 2**30
GPU = Gpu("GPU-1234", "NVIDIA H100", 80 * 2**30, "570.1")


class DriverError(Exception):
    """Stands for pynvml.NVMLError."""


class Driver(SimpleNamespace):
    """Stands for pynvml, which needs a driver.

    Attributes:
        fails: whether the GPU is lost.
        goes_on: cleared to have queries hang.
        called: set by each query.
        num_open: of the connections to it.
    """

    NVMLError = DriverError

    def __init__(self) -> None:
        self.fails = False
        self.goes_on, self.called = threading.Event(), threading.Event()
        self.goes_on.set()
        self.num_open = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the name in pynvml
        """Opens a connection."""
        self.num_open += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the name in pynvml
        """Returns a handle."""
        return f"handle of {uuid}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802 - the name in pynvml
        """Returns the memory in use."""
        self.called.set()
        self.goes_on.wait()
        if self.fails:
            raise DriverError("GPU is lost")
        assert handle == f"handle of {GPU.uuid}"
        return SimpleNamespace(used=USED_BYTES)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Returns the driver of a GPU."""
    made = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    devices._open_driver.cache_clear()
    return made


def create_status(engine: Ready) -> WorkerStatus:
    """Returns the status of a worker with a loaded model."""
    status = WorkerStatus(WorkerState(WorkerSettings(model="null"), "w", InFlightEntries(1)))
    status.set_ready(engine)
    return status


def test_the_memory_of_the_engine_is_that_of_its_process() -> None:
    """As another library counts it; a process that has ended has none, nor has the next one until it is ready."""
    status = create_status(Ready(device="cpu", pid=os.getpid()))
    MemoryMeter(status, []).measure()
    assert status.memory().memory_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    assert status.memory().gpu_used_bytes == 0
    status.set_loading()
    MemoryMeter(status, []).measure()
    assert status.memory() == (0, 0)
    status.set_ready(Ready(pid=2**22 + 1))  # above the highest number that Linux gives
    MemoryMeter(status, []).measure()
    assert status.memory() == (0, 0)


def test_the_memory_of_a_gpu_is_read_from_one_connection_to_its_driver(driver: Driver) -> None:
    """Which is opened once; the figures of a GPU that was lost are unknown until it is back."""
    status = create_status(Ready(device="cuda:0"))
    meter = MemoryMeter(status, [GPU])
    for fails, used in ((False, USED_BYTES), (False, USED_BYTES), (True, 0), (True, 0), (False, USED_BYTES)):
        driver.fails = fails
        meter.measure()
        assert (status.memory(), driver.num_open) == ((0, used), 1)


async def test_a_driver_that_hangs_holds_nothing_up(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop goes on, old figures are no longer reported, and the task ends when it is cancelled."""
    monkeypatch.setattr(memory_meter, "PAUSE_S", 0.01)
    monkeypatch.setattr(worker_status, "MAX_MEMORY_AGE_S", 1.0)
    status = create_status(Ready(device="cuda:0"))
    measuring = asyncio.create_task(MemoryMeter(status, [GPU]).run())
    try:
        await wait_until(lambda: status.memory().gpu_used_bytes == USED_BYTES, "the first figure")
        (thread,) = (each for each in threading.enumerate() if each.name == "memory")
        driver.goes_on.clear()
        driver.called.clear()
        await wait_until(driver.called.is_set, "the thread hangs in the driver")
        await wait_until(lambda: status.memory() == (0, 0), "the figures are too old")
        await cancel_and_wait([measuring])
        assert thread.is_alive()
    finally:
        driver.goes_on.set()
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
