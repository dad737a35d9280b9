"""Kills an engine that hangs; its entries run in the next one."""

from __future__ import annotations

import asyncio
import time

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.gpu.sharing import GpuSharing
from gpuworker.ipc.engine_process import EngineProcess
from gpuworker.policy.hang_timeout import HangTimeout

log = structlog.get_logger()

ADVICE = "if an input may take that long, raise engine_hang_s"
CHECK_INTERVAL_S = 0.2
MAX_PAUSE_S = 1.0
"""If this process itself did not run for this long, the engine may not have run either: its time starts again."""


class Watchdog:
    """Checks the engine several times a second.

    The engine hangs if one entry runs for longer than the timeout, which finds one runner of several that hangs. It
    also hangs if it has sent nothing, and begun nothing, for this time although it has work and is not waiting for a
    GPU.

    Args:
        worker_state: of the worker.
        engine: the engine that is checked.
        hang_timeout: how long it may run or be silent.
        sharing: knows whether it waits for a GPU.
    """

    def __init__(
        self, worker_state: WorkerState, engine: EngineProcess, hang_timeout: HangTimeout, sharing: GpuSharing
    ) -> None:
        self._worker_state = worker_state
        self._sharing = sharing
        self._engine = engine
        self._hang_timeout = hang_timeout
        self._counts_from = self._last_start = time.monotonic()

    async def run(self) -> None:
        """Checks until cancelled."""
        while True:
            last_check = time.monotonic()
            await asyncio.sleep(CHECK_INTERVAL_S)
            now = time.monotonic()
            idle = not self._engine.ready or self._sharing.is_waiting or not self._worker_state.in_flight.unanswered()
            if idle or now - last_check > CHECK_INTERVAL_S + MAX_PAUSE_S:
                self._counts_from = now
                continue
            starts = [started_at for _, started_at in self._worker_state.in_flight.running()]
            self._last_start = max(starts, default=self._last_start)
            quiet_since = max(self._counts_from, self._engine.last_message_at, self._last_start)
            since = min(quiet_since, max(self._counts_from, min(starts, default=quiet_since)))
            limit_s = self._hang_timeout.timeout_s
            if now - since > limit_s:
                log.warning("engine hangs: killed", after_s=round(now - since, 1), bound_s=limit_s, advice=ADVICE)
                metrics.ENGINE_HANGS.inc()
                self._worker_state.in_flight.mark_hung(now, limit_s)
                self._engine.kill()
                self._counts_from = now
