"""Kills an engine that hangs: what it held runs in the next one."""

from __future__ import annotations

import asyncio
import time

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import Context
from gpuworker.ipc.engine_process import EngineHost
from gpuworker.policy.hang_timeout import Patience
from gpuworker.gpu.sharing import Tenancy

log = structlog.get_logger()

LOOK_S = 0.2
ASLEEP_S = 1.0
"""If this process itself did not run for so long, the engine may not have run either: it gets its time again."""


class Watchdog:
    """Looks at the engine a few times a second.

    It hangs when one entry runs for longer than `patience` has, which tells a runner among several; or when it has said
    nothing for as long though it has something to do, and is not waiting for a GPU.
    """

    def __init__(self, context: Context, engine: EngineHost, patience: Patience, tenancy: Tenancy) -> None:
        self._context = context
        self._tenancy = tenancy
        self._engine = engine
        self._patience = patience
        self._from = time.monotonic()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            looked = time.monotonic()
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            idle = not self._engine.ready or self._tenancy.waits or not self._context.hands.unanswered()
            if idle or now - looked > LOOK_S + ASLEEP_S:
                self._from = now
                continue
            began = self._context.hands.oldest_run()
            quiet_since = max(self._from, self._engine.heard)
            since = quiet_since if began is None else min(quiet_since, max(self._from, began))
            if now - since > self._patience.bound_s:
                log.warning("engine hangs: killed", after_s=round(now - since, 1), bound_s=self._patience.bound_s)
                metrics.ENGINE_HANGS.inc()
                self._engine.kill()
                self._from = now
