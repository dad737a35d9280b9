"""Measures the memory that a worker's engine has, and that is in use on its GPU."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.gpu.devices import Gpu, gpu_of, used_memory_bytes
from shared.messages import LOADING, STANDBY

PAUSE_S = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process, with pages that it shares with others; 0 if there is no such process.

    Source: the second field of proc_pid_statm(5).
    """
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    return 0


class MemoryMeter:
    """Measures in a separate thread: a driver that hangs must not stop the heartbeat.

    Args:
        status: of the worker, which gets the figures.
        gpus: the GPUs that the worker's process sees.
    """

    def __init__(self, status: WorkerStatus, gpus: Sequence[Gpu]) -> None:
        self._status, self._gpus = status, gpus

    async def run(self) -> None:
        """Measures until cancelled."""
        ended = threading.Event()
        threading.Thread(target=self._run, args=(ended,), name="memory", daemon=True).start()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(PAUSE_S):
            self.measure()

    def measure(self) -> None:
        """Measures once."""
        engine = self._status.engine
        has_engine = bool(engine.pid) and self._status.state not in (LOADING, STANDBY)
        of_engine = resident_bytes(engine.pid) if has_engine else 0
        self._status.set_memory(of_engine, used_memory_bytes(gpu_of(engine.device, self._gpus)))
