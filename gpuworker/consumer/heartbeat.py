"""The heartbeat, which no fault of the engine may stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from base64 import b64encode
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypedDict

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import HEARTBEAT, ShardState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.gpu.devices import Gpu, gpu_of
from gpuworker.gpu.lease_slots import slots_of
from gpuworker.ipc.messages import Ready
from gpuworker.model_spec import ops_of
from gpuworker.settings import WorkerSettings
from shared import consumer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.eviction import EVICTION_WARNING, evicts, parse_policy
from shared.heartbeats import MIXED_MODELS, mixed_models
from shared.messages import DOES_NOT_LOAD, FAILING, READY, Heartbeat
from shared.process.limited_log import LimitedLog
from shared.process.tasks import wait_for_event
from shared.queue_connections import QueueConnections
from shared.redis_errors import KeyMovedError, UnexpectedReplyError
from shared.silence_probe import SilenceProbe

log, limited_log = structlog.get_logger(), LimitedLog()

LOAD_ERROR_TTL_MS = 60_000
"""How long the reason why a model did not load stays, unless the next attempt succeeds."""

MAX_LOAD_ERROR_CHARS = 500

MAX_NAMES_CHARS = 2_000
"""Of all names of prompts, or of labels: more would make a heartbeat long, and models have a handful of short ones."""


class HeartbeatSender:
    """Sends a heartbeat to a shard every `heartbeat_s`, with the status of the worker.

    Args:
        shard: to which it is sent.
        status: of the worker.
        gpus: the GPUs that this process sees.
        connections: those of the worker to the shard.
    """

    def __init__(
        self, shard: ShardState, status: WorkerStatus, gpus: Sequence[Gpu], connections: QueueConnections
    ) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._status = status
        self._gpus = gpus
        self._shared_connection = connections.shared_connection("queues", instead=shard.control)
        self._probe = SilenceProbe(connections, shard.control, self.send)
        settings = self._worker_state.settings
        self._gpu_pool, self._gpu_slots = _lease_slots(settings)
        self._ops_before_load = ops_of(settings.model, settings.model_revision)
        self._interval_s, self._ttl_ms = settings.heartbeat.interval_s, int(1000 * settings.heartbeat.ttl_s)
        self._started_ms = int(time.time() * 1000)
        self._can_announce = True
        self._announcing: asyncio.Task[None] | None = None
        self._was_first = False
        self._checked_eviction = self._checked_models = self._left_no_error = False

    @property
    def is_queue_unproven(self) -> bool:
        """Whether this worker was the first to announce its queue, and its model has not loaded yet."""
        return self._was_first and not self._status.engine.model

    async def run(self) -> None:
        """Sends heartbeats until cancelled, and one at once when the state changes."""
        try:
            await self._run()
        finally:
            if self._announcing is not None:
                self._announcing.cancel()

    async def _run(self) -> None:
        while True:
            self._shard.heartbeat_due.clear()
            self._worker_state.interactive_load.advance(time.monotonic())
            metrics.TOKEN_RATE.labels(self._worker_state.worker).set(self._worker_state.tokens_per_s)
            try:
                async with self._probe.watch():
                    await self._shard.control.check_home()
                    now_ms, workers = await self.send(self._shard.control)
                self._shard.clock.observe(now_ms)
                self._shard.workers = max(1, workers)
                self._shard.record_call(HEARTBEAT, is_answered=True)
                await self._announce_queue()
                await self._check_eviction()
                await self._check_models()
                await self._remove_load_error()
            except RedisUnreachableError as error:
                self._shard.record_call(HEARTBEAT, is_answered=False)
                limited_log.write(logging.WARNING, "no heartbeat", reason=error.log_message, redis=self._shard.address)
            await wait_for_event(self._shard.heartbeat_due, self._interval_s)

    async def send(self, connection: RedisConnection) -> tuple[int, int]:
        """Sends a heartbeat; returns Redis' clock (ms) and the number of live workers that take work."""
        return await consumer.heartbeat(connection, self._shard.keys, self._heartbeat(), self._ttl_ms)

    async def _announce_queue(self) -> None:
        """Announces the queue, beside the heartbeats if the list of queues may be on another server than they are."""
        if self._shared_connection is self._shard.control:
            await self._announce()
        elif self._announcing is None or self._announcing.done():
            self._announcing = asyncio.create_task(self._announce_elsewhere(), name="announce")

    async def _announce_elsewhere(self) -> None:
        with suppress(RedisUnreachableError):  # which says nothing of the server of the queue
            await self._announce()

    async def _announce(self) -> None:
        """Announces the queue to gateways. Its failure is not fatal: gateways can also be configured with the queue."""
        try:
            is_new = await consumer.announce(self._shared_connection, self._shard.keys)
            self._was_first |= is_new and not self._status.engine.model
        except (KeyMovedError, UnexpectedReplyError) as error:  # of the key that all queues share
            if self._can_announce:
                log.warning("Redis does not let this worker announce the queue", reason=error.log_message)
            self._can_announce = False
        else:
            self._can_announce = True

    async def withdraw_unproven(self) -> None:
        """Ends the announcement of a queue of which no model has loaded; raises RedisUnreachableError."""
        if self.is_queue_unproven:
            await consumer.withdraw(self._shared_connection, self._shard.keys)

    async def _check_eviction(self) -> None:
        """Warns once if Redis may remove keys; once for all workers of a process and each Redis.

        Its failure is not fatal. It is tried again only if Redis was unreachable.
        """
        if self._checked_eviction:
            return
        policy = ""
        try:
            policy = parse_policy(await self._shard.control.call("INFO", "memory"))
        except UnexpectedReplyError as error:  # Redis may forbid it: then nothing is known
            log.debug("the maxmemory-policy of Redis cannot be read", reason=error.log_message)
        self._checked_eviction = True
        if evicts(policy):
            limited_log.write(logging.WARNING, EVICTION_WARNING, policy=policy, redis=self._shard.address)

    async def _check_models(self) -> None:
        """Warns once, as soon as the model is loaded, if workers of the queue have other models.

        Its failure is not fatal. It is tried again only if Redis was unreachable.
        """
        if self._checked_models or not self._status.engine.revision:
            return
        try:
            workers = await consumer.live_workers(self._shard.control, self._shard.keys)
        except (UnexpectedReplyError, ValueError) as error:  # Redis may forbid the keys, or hold something else in them
            reason = error.log_message if isinstance(error, UnexpectedReplyError) else str(error)
            log.warning("the heartbeats of the queue's other workers cannot be read", reason=reason)
            workers = []
        self._checked_models = True
        if models := mixed_models(workers):
            log.warning(MIXED_MODELS, queue=self._shard.keys.queue, models=models)

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
        await consumer.heartbeat(self._shard.control, self._shard.keys, beat, LOAD_ERROR_TTL_MS)

    async def _remove_load_error(self) -> None:
        """Removes, once the model is loaded, what an earlier attempt on this host has left.

        Its failure is not fatal, since that expires. It is tried again only if Redis was unreachable.
        """
        if self._status.state != READY or self._left_no_error:
            return
        try:
            await consumer.leave(self._shard.control, self._shard.keys, self._name_of_error)
        except UnexpectedReplyError as error:  # Redis may hold something else in the key
            reason = error.log_message
            log.warning("why the model did not load is no longer valid, but cannot be removed", reason=reason)
        self._left_no_error = True

    def _heartbeat(self) -> Heartbeat:
        worker_state, shard, status, engine = self._worker_state, self._shard, self._status, self._status.engine
        tokens_per_s = worker_state.tokens_per_s
        bulk_tokens_per_s = worker_state.interactive_load.bulk_rate(tokens_per_s, worker_state.settings.bulk.share)
        return Heartbeat(
            worker=worker_state.worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=engine.device,
            model=worker_state.settings.model,
            dim=engine.dim,
            state=status.state,
            tokens_per_s=round(tokens_per_s * shard.rate_share, 1),
            holds=worker_state.in_flight.num_of(shard.number),
            begun=len(worker_state.in_flight.running(shard.number)),
            started_ms=self._started_ms,
            long_tokens=worker_state.in_flight.long_tokens(worker_state.settings.batching.max_size, shard.number),
            bulk_tokens_per_s=round(bulk_tokens_per_s * shard.rate_share, 1),
            dtype=engine.dtype,
            pooling=engine.pooling,
            max_input_tokens=engine.max_input_tokens,
            max_batch_tokens=engine.max_batch_tokens,
            max_batch_size=worker_state.settings.batching.max_size,
            revision=engine.revision,
            commit=engine.commit,
            gpu_pool=self._gpu_pool,
            gpu_slots=self._gpu_slots,
            max_input_bytes=worker_state.settings.max_model_input_bytes or 0,
            failing=worker_state.circuit.reason if status.state in (FAILING, READY) else "",
            retry_s=round(worker_state.circuit.open_s(time.monotonic()), 1),
            ops=engine.ops or self._ops_before_load,
            activity=shard.activity.summarize(time.monotonic()),
            normalizes=engine.normalizes if engine.model else None,
            activation=engine.activation,
            **_gpu_fields(gpu_of(engine.device, self._gpus)),
            **status.memory()._asdict(),
            **_model_fields(engine),
        )


class _GpuFields(TypedDict):
    gpu: str
    gpu_uuid: str
    gpu_memory_bytes: int
    driver: str


def _gpu_fields(gpu: Gpu) -> _GpuFields:
    """Returns a GPU as a heartbeat has it."""
    return {"gpu": gpu.name, "gpu_uuid": gpu.uuid, "gpu_memory_bytes": gpu.memory_bytes, "driver": gpu.driver}


class _ModelFields(TypedDict):
    prompts: tuple[str, ...] | None
    empty_prompts: tuple[str, ...]
    labels: tuple[str, ...]
    int8_ranges: str


def _model_fields(engine: Ready) -> _ModelFields:
    """Returns the names of the model's prompts and labels, and its ranges, as a heartbeat has them."""
    return {
        "prompts": _if_short(engine.prompts) if engine.model else None,
        "empty_prompts": _if_short(engine.empty_prompts) or (),
        "labels": _if_short(engine.labels) or (),
        "int8_ranges": b64encode(engine.int8_ranges).decode(),
    }


def _if_short(names: Collection[str]) -> tuple[str, ...] | None:
    """Returns names of a model; None, as while they are unknown, if they are too long together."""
    return tuple(names) if sum(map(len, names)) + len(names) <= MAX_NAMES_CHARS else None


def _lease_slots(settings: WorkerSettings) -> tuple[str, tuple[str, ...]]:
    """Returns the pool of the GPUs that a worker shares by leases, and the slots that it accepts; empty without one."""
    lease = settings.lease
    if lease.mode == "off":
        return "", ()
    return lease.pool, tuple(slots_of(lease.gpus, lease.per_gpu, settings.device))
