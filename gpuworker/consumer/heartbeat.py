"""The heartbeat, which no fault of the engine may stop; and the tick of the event loop beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.gpu.devices import Gpu, gpu_of
from gpuworker.gpu.lease_slots import slots_of
from gpuworker.ipc.messages import Ready
from gpuworker.model_spec import ops_of
from gpuworker.settings import WorkerSettings
from shared import consumer
from shared.connection import QueueConnections, RedisConnection
from shared.errors import RedisUnreachableError
from shared.eviction import EVICTION_WARNING, evicts, parse_policy
from shared.heartbeats import MIXED_MODELS, mixed_models
from shared.messages import DOES_NOT_LOAD, DRAINING, FAILING, LOADING, READY, STANDBY, Heartbeat
from shared.process.limited_log import LimitedLog
from shared.process.tasks import wait_for_event
from shared.redis_errors import KeyMovedError, UnexpectedReplyError
from shared.silence_probe import SilenceProbe

log, limited_log = structlog.get_logger(), LimitedLog()

LOAD_ERROR_TTL_MS = 60_000
"""How long the reason why a model did not load stays, unless the next attempt succeeds."""

MAX_LOAD_ERROR_CHARS = 500

TICK_S = 1.0
STUCK_S = 10.0
"""An event loop that has not ticked for this long counts as dead."""

MAX_PROMPT_CHARS = 2_000
"""Of all names of prompts: more would make a heartbeat long, and models have a handful of short ones."""


class HeartbeatSender:
    """Sends a heartbeat every `heartbeat_s` with the worker's state; knows whether the worker is ready and alive.

    Args:
        worker_state: of the worker.
        gpus: the GPUs that this process sees.
        queue: the worker's connections to the queue.

    Attributes:
        state: one of shared.messages.STATES.
        is_queue_unproven: whether this worker was the first to announce its queue, and its model has not loaded yet.
    """

    def __init__(self, worker_state: WorkerState, gpus: Sequence[Gpu], queue: QueueConnections) -> None:
        self._worker_state = worker_state
        self._gpus = gpus
        self._probe = SilenceProbe(queue, worker_state.control, self.send)
        self._gpu_pool, self._gpu_slots = _lease_slots(worker_state.settings)
        self._interval_s = worker_state.settings.heartbeat.interval_s
        self._ttl_ms = int(1000 * worker_state.settings.heartbeat.ttl_s)
        self._engine = Ready()
        self._started_ms = int(time.time() * 1000)
        self._redis_reachable = False
        self._can_announce = True
        self._checked_eviction = self._checked_models = self._left_no_error = False
        self._last_tick = time.monotonic()
        self._send_now = asyncio.Event()
        self.state = LOADING
        self.is_queue_unproven = False
        self._set_up(up=False)  # also while the first engine loads, which may never finish

    async def tick(self) -> None:
        """Notes that the event loop runs, however long Redis takes for an answer; until cancelled."""
        while True:
            self._last_tick = time.monotonic()
            await asyncio.sleep(TICK_S)

    async def run(self) -> None:
        """Sends heartbeats until cancelled, and one at once when the state changes."""
        while True:
            self._send_now.clear()
            self._worker_state.interactive_load.advance(time.monotonic())
            metrics.TOKEN_RATE.labels(self._worker_state.worker).set(self._worker_state.tokens_per_s)
            try:
                async with self._probe.watch():
                    await self._worker_state.control.check_home()
                    now_ms, workers = await self.send(self._worker_state.control)
                self._worker_state.clock.observe(now_ms)
                self._worker_state.workers = max(1, workers)
                self._redis_reachable = True
                await self._announce()
                await self._check_eviction()
                await self._check_models()
                await self._remove_load_error()
            except RedisUnreachableError as error:
                self._redis_reachable = False
                limited_log.write(logging.WARNING, "no heartbeat", reason=error.log_message)
            await wait_for_event(self._send_now, self._interval_s)

    async def send(self, connection: RedisConnection) -> tuple[int, int]:
        """Sends a heartbeat; returns Redis' clock (ms) and the number of live workers that take work."""
        return await consumer.heartbeat(connection, self._worker_state.keys, self._heartbeat(), self._ttl_ms)

    async def _announce(self) -> None:
        """Announces the queue to gateways. Its failure is not fatal: gateways can also be configured with the queue."""
        try:
            is_new = await consumer.announce(self._worker_state.control, self._worker_state.keys)
            self.is_queue_unproven |= is_new and not self._engine.model
        except (KeyMovedError, UnexpectedReplyError) as error:  # of the key that all queues share
            if self._can_announce:
                log.warning("Redis does not let this worker announce the queue", reason=error.log_message)
            self._can_announce = False
        else:
            self._can_announce = True

    async def _check_eviction(self) -> None:
        """Warns once if Redis may remove keys; once for all workers of a process.

        Its failure is not fatal. It is tried again only if Redis was unreachable.
        """
        if self._checked_eviction:
            return
        policy = ""
        try:
            policy = parse_policy(await self._worker_state.control.call("INFO", "memory"))
        except UnexpectedReplyError as error:  # Redis may forbid it: then nothing is known
            log.debug("the maxmemory-policy of Redis cannot be read", reason=error.log_message)
        self._checked_eviction = True
        if evicts(policy):
            limited_log.write(logging.WARNING, EVICTION_WARNING, policy=policy)

    async def _check_models(self) -> None:
        """Warns once, as soon as the model is loaded, if workers of the queue have other models.

        Its failure is not fatal. It is tried again only if Redis was unreachable.
        """
        if self._checked_models or not self._engine.revision:
            return
        try:
            workers = await consumer.live_workers(self._worker_state.control, self._worker_state.keys)
        except (UnexpectedReplyError, ValueError) as error:  # Redis may forbid the keys, or hold something else in them
            reason = error.log_message if isinstance(error, UnexpectedReplyError) else str(error)
            log.warning("the heartbeats of the queue's other workers cannot be read", reason=reason)
            workers = []
        self._checked_models = True
        if models := mixed_models(workers):
            log.warning(MIXED_MODELS, queue=self._worker_state.keys.queue, models=models)

    @property
    def _name_of_error(self) -> str:
        """Who seems to send the load error of this host; one name for all attempts, which have separate ones."""
        return f"{socket.gethostname()}-failed"

    async def leave_load_error(self, reason: str) -> None:
        """Leaves a heartbeat that says why the model did not load: who restarts this process may try again for ever.

        Raises RedisUnreachableError.
        """
        beat = replace(
            self._heartbeat(),
            worker=self._name_of_error,
            state=FAILING,
            failing=DOES_NOT_LOAD,
            load_error=reason[:MAX_LOAD_ERROR_CHARS],
            started_ms=int(time.time() * 1000),
            gpu_pool="",
            gpu_slots=(),
        )
        await consumer.heartbeat(self._worker_state.control, self._worker_state.keys, beat, LOAD_ERROR_TTL_MS)

    async def _remove_load_error(self) -> None:
        """Removes, once the model is loaded, what an earlier attempt on this host has left.

        Its failure is not fatal, since that expires. It is tried again only if Redis was unreachable.
        """
        if self.state != READY or self._left_no_error:
            return
        try:
            await consumer.leave(self._worker_state.control, self._worker_state.keys, self._name_of_error)
        except UnexpectedReplyError as error:  # Redis may hold something else in the key
            reason = error.log_message
            log.warning("why the model did not load is no longer valid, but cannot be removed", reason=reason)
        self._left_no_error = True

    def set_ready(self, engine: Ready) -> None:
        """Records that the engine is ready, with what its message reports of the model."""
        self._engine = engine
        self.is_queue_unproven = False
        self._set_state(READY)
        self._set_up(up=True)

    def set_resumed(self) -> None:
        """Records that the engine, which was ready before the worker stood by, is ready again."""
        self.set_ready(self._engine)

    def set_loading(self) -> None:
        """Records that the next engine loads."""
        self._set_state(LOADING)
        self._set_up(up=False)

    def set_standby(self) -> None:
        """Records that another worker has the GPU. This is a normal state: probes report nothing wrong."""
        self._set_state(STANDBY)
        self._set_up(up=False)

    def set_failing(self) -> None:
        """Records that the model fails on every batch, so that this worker claims nothing for a while."""
        self._set_state(FAILING)
        self._set_up(up=False)

    def set_working(self) -> None:
        """Records that a failing model may have work again."""
        if self.state == FAILING:
            self._set_state(READY)
            self._set_up(up=True)

    def set_draining(self) -> None:
        """Records that the worker is about to leave; from now on the engine does not change the state."""
        self._set_state(DRAINING)

    def _set_up(self, *, up: bool) -> None:
        metrics.UP.labels(self._worker_state.worker, self._worker_state.settings.model).set(up)

    def _set_state(self, state: str) -> None:
        if self.state != DRAINING:
            self.state = state
            self._send_now.set()

    def missing_parts(self) -> list[str]:
        """Returns what keeps this worker from serving: `redis`, `engine` or both; or that its model fails, and how."""
        missing = [] if self._redis_reachable and not self._worker_state.refused_calls else ["redis"]
        if self.state == FAILING:
            return [*missing, f"model_failing: {self._worker_state.circuit.reason}"]
        return missing if self.state in (READY, STANDBY) else [*missing, "engine"]

    def is_alive(self) -> bool:
        """Returns whether the event loop still runs. Redis has no influence: its outage must restart no engine."""
        return time.monotonic() - self._last_tick < STUCK_S

    def _heartbeat(self) -> Heartbeat:
        worker_state, engine = self._worker_state, self._engine
        gpu, tokens_per_s = gpu_of(engine.device, self._gpus), worker_state.tokens_per_s
        return Heartbeat(
            worker=worker_state.worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=engine.device,
            model=worker_state.settings.model,
            dim=engine.dim,
            state=self.state,
            tokens_per_s=round(tokens_per_s, 1),
            holds=len(worker_state.in_flight),
            begun=len(worker_state.in_flight.running()),
            started_ms=self._started_ms,
            long_tokens=worker_state.in_flight.long_tokens(worker_state.settings.batching.max_size),
            bulk_tokens_per_s=round(
                worker_state.interactive_load.bulk_rate(tokens_per_s, worker_state.settings.bulk.share), 1
            ),
            dtype=engine.dtype,
            pooling=engine.pooling,
            max_input_tokens=engine.max_input_tokens,
            max_batch_tokens=engine.max_batch_tokens,
            max_batch_size=worker_state.settings.batching.max_size,
            revision=engine.revision,
            commit=engine.commit,
            gpu=gpu.name,
            gpu_uuid=gpu.uuid,
            gpu_memory_bytes=gpu.memory_bytes,
            driver=gpu.driver,
            gpu_pool=self._gpu_pool,
            gpu_slots=self._gpu_slots,
            max_input_bytes=worker_state.settings.max_model_input_bytes or 0,
            failing=worker_state.circuit.reason if self.state == FAILING else "",
            retry_s=round(worker_state.circuit.open_s(time.monotonic()), 1),
            ops=ops_of(worker_state.settings.model),
            activity=worker_state.activity.summarize(time.monotonic()),
            prompts=_names_of(engine.prompts) if engine.model else None,
            normalizes=engine.normalizes if engine.model else None,
        )


def _names_of(prompts: Collection[str]) -> tuple[str, ...] | None:
    """Returns the names of a model's prompts; None, as while they are unknown, if they are too long together."""
    return tuple(prompts) if sum(map(len, prompts)) + len(prompts) <= MAX_PROMPT_CHARS else None


def _lease_slots(settings: WorkerSettings) -> tuple[str, tuple[str, ...]]:
    """Returns the pool of the GPUs that a worker shares by leases, and the slots that it accepts; empty without one."""
    lease = settings.lease
    if lease.mode == "off":
        return "", ()
    return lease.pool, tuple(slots_of(lease.gpus, lease.per_gpu, settings.device))
