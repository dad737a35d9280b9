"""The heartbeat, which nothing that happens to the engine may stop; and the tick of the event loop beside it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import Context
from gpuworker.gpu.devices import Gpu, gpu_of
from gpuworker.ipc.frames import Header
from shared.process.tasks import wait_for_event
from shared import consumer
from shared.errors import RedisUnreachable
from shared.messages import DRAINING, LOADING, READY, STANDBY, Heartbeat

log = structlog.get_logger()

TICK_S = 1.0
STUCK_S = 10.0
"""An event loop that did not come round for this long does not live."""


class Pacemaker:
    """Says once a second what this worker is and does; knows whether it is ready and alive."""

    def __init__(self, context: Context, ttl_s: float, seen: Sequence[Gpu]) -> None:
        self._context = context
        self._seen = seen
        self._ttl_ms = int(ttl_s * 1000)
        self._engine: Header = {}
        self._started_ms = int(time.time() * 1000)
        self._heard = False
        self._announces = True
        self._round = time.monotonic()
        self._now = asyncio.Event()
        self.state = LOADING
        self._show(up=False)  # also while the first engine loads, which may never end

    async def tick(self) -> None:
        """Notes that the event loop comes round, however long Redis takes for an answer; until cancelled."""
        while True:
            self._round = time.monotonic()
            await asyncio.sleep(TICK_S)

    async def run(self) -> None:
        """Beats until cancelled, and at once when the state changes."""
        while True:
            self._now.clear()
            self._context.demand.passed(time.monotonic())
            try:
                now_ms, workers = await consumer.heartbeat(
                    self._context.control, self._context.keys, self._beat(), self._ttl_ms
                )
                self._context.clock.saw(now_ms)
                self._context.workers = max(1, workers)
                self._heard = True
                await self._announce()
            except RedisUnreachable as error:
                self._heard = False
                log.warning("no heartbeat", reason=error.message)
            await wait_for_event(self._now, self._context.settings.heartbeat_s)

    async def _announce(self) -> None:
        """Says which queue is served. What gateways find by themselves is no need: they may be told of it."""
        try:
            await consumer.announce(self._context.control, self._context.keys)
        except RedisUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - Redis may forbid the key that all queues share
            if self._announces:
                log.warning("cannot announce the queue", reason=str(error))
            self._announces = False
        else:
            self._announces = True

    def ready(self, engine: Header) -> None:
        """The engine is ready, with what its frame says of the model."""
        self._engine = engine
        self._become(READY)
        self._show(up=True)

    def loading(self) -> None:
        """The next engine loads."""
        self._become(LOADING)
        self._show(up=False)

    def stand_by(self) -> None:
        """Another worker has the GPU. That is as it should be: probes find nothing wrong with it."""
        self._become(STANDBY)
        self._show(up=False)

    def drain(self) -> None:
        """The worker is on its way out, whatever becomes of its engine."""
        self._become(DRAINING)

    def _show(self, *, up: bool) -> None:
        metrics.UP.labels(self._context.worker, self._context.settings.model).set(up)

    def _become(self, state: str) -> None:
        if self.state != DRAINING:
            self.state = state
            self._now.set()

    def missing(self) -> list[str]:
        """Returns what keeps this worker from serving."""
        return [
            name for name, there in (("redis", self._heard), ("engine", self.state in (READY, STANDBY))) if not there
        ]

    def alive(self) -> bool:
        """Whether the event loop still comes round. Redis has no part in it: its outage restarts no engine."""
        return time.monotonic() - self._round < STUCK_S

    def _beat(self) -> Heartbeat:
        context, engine = self._context, self._engine
        gpu = gpu_of(engine.get("device", ""), self._seen)
        return Heartbeat(
            worker=context.worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=engine.get("device", ""),
            model=context.settings.model,
            dim=engine.get("dim", 0),
            state=self.state,
            tokens_per_s=round(context.tokens_per_s, 1),
            holds=len(context.hands),
            begun=len(context.hands.running()),
            started_ms=self._started_ms,
            bulk_tokens_per_s=round(context.demand.left(context.tokens_per_s, context.settings.bulk_share), 1),
            dtype=engine.get("dtype", ""),
            pooling=engine.get("pooling", ""),
            max_input_tokens=engine.get("max_input_tokens", 0),
            max_batch_tokens=engine.get("max_batch_tokens", 0),
            max_batch_size=context.settings.max_batch_size,
            revision=engine.get("revision", ""),
            commit=engine.get("commit", ""),
            gpu=gpu.name,
            gpu_uuid=gpu.uuid,
            gpu_memory_bytes=gpu.memory_bytes,
            driver=gpu.driver,
        )
