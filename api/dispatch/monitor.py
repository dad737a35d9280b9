"""The state of Redis and of the fleet, polled once a second.

The monitor is the circuit breaker in front of Redis: while it is open, requests that would wait in vain are refused
(`admission.admit`), and the polls are the probes that close it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

import structlog
from structlog.contextvars import bound_contextvars

from api import metrics
from api.dispatch.admission import ClusterState, max_tokens, retry_after_s
from api.dispatch.fleet import LongBacklog, find_failure, fleet_rate, long_backlog, sum_tenants
from api.dispatch.monitor_metrics import clear_redis, publish, publish_shard, warn_of_memory
from api.tenants import ANONYMOUS, Tenant, limits_of
from shared import producer
from shared.errors import OverloadedError, QueueFullError, RedbatchError, RedisUnreachableError
from shared.heartbeats import MIXED_MODELS, mixed_models
from shared.keys import BULK, INTERACTIVE, LANES
from shared.messages import DOES_NOT_LOAD, READY, Heartbeat
from shared.process.tasks import cancel_and_wait, wait_for_event
from shared.producer import QueueStats
from shared.queue_connections import QueueConnections
from shared.silence_probe import UNREACHABLE_AFTER_S, SilenceProbe
from shared.tenants import NO_ACTIVE_TENANTS, Limits

log = structlog.get_logger()

POLL_INTERVAL_S = 1.0
PROBE_INTERVAL_S = 0.25
"""Poll interval while Redis is out of reach: shorter, so that requests do not wait needlessly once it is back."""

STALE_AFTER_S = 5.0
"""Older statistics are removed from the metrics: a gateway that is cut off must not speak for the cluster."""


@dataclass(frozen=True, slots=True)
class MonitorCallbacks:
    """Callbacks: `on_loss` when Redis may have lost data (another epoch or master), `on_fleet` after each poll."""

    on_loss: Callable[[], Awaitable[None]]
    on_fleet: Callable[[], None]


class Monitor:
    """Polls the queue's state, and detects a loss of its data.

    Args:
        connections: those of this gateway to the queue.
        worker_grace_s: how long after the last ready worker a live worker that is not ready counts as ready, s.
        callbacks: what to call after a loss of data, and after a poll.

    Attributes:
        vector_bytes: of a vector of the queue's model; 0 while unknown.
        num_ready: ready workers, as of the last poll.
        place: the number and the Redis of the shard, for log lines; empty if there is only one.
        workers_per_shard: ready workers of all shards, divided by these: a worker may serve several.
        stats: of the last poll; None before.
        tokens_per_s: of the ready workers in each lane, as this shard has it; 0 while unknown.
        max_input_tokens: that the queue's model reads of a text; 0 without a maximum, and while it is unknown.
    """

    def __init__(self, connections: QueueConnections, worker_grace_s: float, callbacks: MonitorCallbacks) -> None:
        self._keys = keys = connections.keys
        self._connection = connections.connection("monitor")
        self._probe = SilenceProbe(
            connections, self._connection, lambda connection: producer.queue_stats(connection, keys)
        )
        self._callbacks = callbacks
        self.stats: QueueStats | None = None
        self._down_since: float | None = None
        self._poll_started_at: float | None = None
        self._polling: asyncio.Task[None] | None = None
        self._last_heartbeat_at: float | None = None
        self._ready_at: dict[str, float] = {}
        self._worker_grace_s = worker_grace_s
        self.tokens_per_s = [0.0 for _ in LANES]
        self._long_backlog = LongBacklog()
        self._active, self._fleet_tokens_per_s = NO_ACTIVE_TENANTS, 0.0
        self._shards: Sequence[Monitor] = (self,)
        self._shard, self._address = "0", connections.settings.redis_address
        self.place: Mapping[str, object] = {}
        self.vector_bytes = self.max_input_tokens = self.num_ready = self.workers_per_shard = 0
        self._epoch = b""
        self._workers: tuple[Heartbeat, ...] = ()
        self._models: set[str] = set()
        self._mixed_models: list[str] = []
        self._ops: frozenset[str] = frozenset()
        self._failure = ("", 0.0)
        self._epoch_known = False
        self._loss_logged_at = -inf
        self._data_lost = asyncio.Event()
        self._last_beat_at = time.monotonic()

    def join(self, shards: Sequence[Monitor]) -> None:
        """Makes this the monitor of one of the shards of a queue, by their numbers."""
        number = shards.index(self)
        self._shards, self._shard, self.place = shards, str(number), {"shard": number, "redis": self._address}

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            await self.poll()
            self._callbacks.on_fleet()
            if self._data_lost.is_set():
                await self._handle_loss()
            await wait_for_event(self._data_lost, POLL_INTERVAL_S if self._down_since is None else PROBE_INTERVAL_S)

    async def beat(self) -> None:
        """Records that the event loop runs, independent of how long Redis takes to answer; until cancelled."""
        while True:
            self._last_beat_at = time.monotonic()
            metrics.REDIS_UP.labels(self._shard).set(not self._down_s(self._last_beat_at))
            await asyncio.sleep(POLL_INTERVAL_S)

    async def poll(self) -> None:
        """Polls once, or waits for the poll that is under way: there is only one connection for them."""
        await asyncio.shield(self.begin_poll())  # it is not the caller's alone, who may leave

    def begin_poll(self) -> asyncio.Task[None]:
        """Starts a poll, unless one is under way; returns it."""
        if self._polling is None:
            with bound_contextvars(**self.place):
                self._polling = asyncio.create_task(self._poll(), name="poll")
            self._polling.add_done_callback(self._end_poll)
        return self._polling

    def _end_poll(self, poll: asyncio.Task[None]) -> None:
        self._polling = None
        if not poll.cancelled():
            poll.exception()  # retrieved even if no caller waits, so that asyncio does not warn

    async def stop(self) -> None:
        """Ends the poll that is under way, if there is one."""
        if self._polling is not None:
            await cancel_and_wait([self._polling])

    async def _poll(self) -> None:
        started_at = self._poll_started_at = time.monotonic()
        try:
            async with self._probe.watch():
                await self._connection.check_home()
                before, self.stats = self.stats, await producer.queue_stats(self._connection, self._keys)
        except Exception as error:
            if self._down_since is None:
                self._down_since = started_at
                reason = error.log_message if isinstance(error, RedisUnreachableError) else type(error).__name__
                log.warning("Redis is out of reach", reason=reason)
            elif started_at - self._down_since > STALE_AFTER_S:
                clear_redis(self._shard)
                if all(each.is_down for each in self._shards):
                    metrics.remove_queue(self._keys.queue)
            if not isinstance(error, RedisUnreachableError):
                raise
        else:
            metrics.REDIS_ROUND_TRIP.observe(time.monotonic() - started_at)
            if before is None or before.eviction_policy != self.stats.eviction_policy:
                warn_of_memory(self.stats, self.place)
            self._observe_workers(self.stats)
            ready = [each for each in self._workers if each.state == READY]
            self.num_ready = len(ready)
            self._long_backlog = long_backlog(ready)
            self.vector_bytes = max((4 * each.dim for each in ready), default=self.vector_bytes)
            if ready:  # otherwise the last values are better estimates than none: an engine may be restarting
                maxima = [each.max_input_tokens for each in ready]
                self.max_input_tokens = max(maxima) if all(maxima) else 0
                self.tokens_per_s[INTERACTIVE] = fleet_rate([each.tokens_per_s for each in ready])
                self.tokens_per_s[BULK] = fleet_rate([each.bulk_tokens_per_s for each in ready])
            self._down_since = self._poll_started_at = None
            self._observe_shards()
            self.observe_epoch(self.stats.epoch)
            publish_shard(self._keys.queue, self._shard, self.stats)
        finally:
            self._poll_started_at = None

    def _observe_workers(self, stats: QueueStats) -> None:
        """Records what the heartbeats say, and when: an outage of Redis counts for nothing, as none can come in it."""
        now = time.monotonic()
        self._workers = workers = tuple(each for each in stats.workers if each.failing != DOES_NOT_LOAD)
        self._models.update(each.model for each in stats.workers)
        mixed, self._mixed_models = self._mixed_models, mixed_models(workers)
        if self._mixed_models and self._mixed_models != mixed:
            log.warning(MIXED_MODELS, queue=self._keys.queue, models=self._mixed_models)
        # A worker that still loads a model of the hub knows no operations: the others' count.
        if reporting := [each for each in workers if each.ops or each.revision]:
            known = all(each.ops for each in reporting)
            self._ops = frozenset(op for each in reporting for op in each.ops) if known else frozenset()
        if self._down_since is not None:
            outage_s = now - self._down_since
            log.info("Redis answers again", after_s=round(outage_s, 1))
            self._ready_at = {host: at + outage_s for host, at in self._ready_at.items()}
            if self._last_heartbeat_at is not None:
                self._last_heartbeat_at += outage_s
        ready_at = self._ready_at | {each.host: now for each in workers if each.state == READY}
        self._ready_at = {host: at for host, at in ready_at.items() if now - at <= self._worker_grace_s}
        self._failure = find_failure(stats.workers, self._ready_at)
        if stats.last_heartbeat_ms:
            seen_at = now - (stats.now_ms - stats.last_heartbeat_ms) / 1000
            self._last_heartbeat_at = max(seen_at, self._last_heartbeat_at or seen_at)

    def _observe_shards(self) -> None:
        """Adds up what the shards say that answer: for the limits of tenants, each of which is on one, and metrics."""
        up = [each for each in self._shards if not each.is_down]
        stats = [each.stats for each in up if each.stats is not None]
        self._active = sum_tenants([each.tenants for each in stats])
        self._fleet_tokens_per_s = sum(each.tokens_per_s[INTERACTIVE] for each in up)
        workers = list({worker.worker: worker for each in up for worker in each.workers()}.values())
        self.workers_per_shard = ceil(sum(each.state == READY for each in workers) / len(up))
        publish(self._keys.queue, stats, workers, self._fleet_tokens_per_s)

    def observe_epoch(self, epoch: bytes) -> None:
        """Compares the epoch of an answer of Redis with the last one; empty means that the queue has none now."""
        if self._epoch_known and epoch != self._epoch:
            self._data_lost.set()
        self._epoch = epoch
        self._epoch_known = self._epoch_known or bool(epoch)

    def observe_move(self) -> None:
        """Records that Redis has another master, which may not have what the former one received last."""
        self._data_lost.set()

    async def _handle_loss(self) -> None:
        now = time.monotonic()
        # One loss changes the epoch several times: to none, to one that a gateway sets, to that of the new group.
        if now - self._loss_logged_at > POLL_INTERVAL_S:
            self._loss_logged_at = now
            log.warning("Redis lost the queue's data, its group was recreated or it moved: reconciling all requests")
        self._data_lost.clear()  # before the callback: the data may be lost again while that runs
        try:
            await self._callbacks.on_loss()
        except RedisUnreachableError:
            self._data_lost.set()
            await asyncio.sleep(POLL_INTERVAL_S / 4)
        except Exception:
            self._data_lost.set()
            raise

    def cluster(self) -> ClusterState:
        """Returns the present state of Redis and of the fleet, for admission."""
        now = time.monotonic()
        down_s = self._down_s(now)
        if self.stats is None:
            return ClusterState(redis_down_s=down_s)
        unseen_s = None
        if self.stats.workers:
            unseen_s = 0.0
        elif self._last_heartbeat_at is not None:
            unseen_s = max(0.0, now - down_s - self._last_heartbeat_at)
        return ClusterState(down_s, unseen_s, self.stats.memory_ratio, *self._failure)

    def worker_unseen_s(self) -> float | None:
        """Returns the time since the last sign of life of any worker, s; None if none is known."""
        return None if self.stats is None else self.cluster().worker_unseen_s

    @property
    def is_down(self) -> bool:
        """Whether Redis does not answer: the last poll failed, or one has waited for UNREACHABLE_AFTER_S."""
        return self._down_s(time.monotonic()) > 0

    def _down_s(self, now: float) -> float:
        if self._down_since is not None:
            return now - self._down_since
        waiting_s = 0.0 if self._poll_started_at is None else now - self._poll_started_at
        return waiting_s if waiting_s > UNREACHABLE_AFTER_S else 0.0

    def workers(self) -> tuple[Heartbeat, ...]:
        """Returns the live workers, as of the last poll: not what hosts say on which the model did not load."""
        return self._workers

    def max_memory_bytes(self) -> int:
        """Returns the maxmemory of Redis, as of the last poll; 0 if it has none."""
        return 0 if self.stats is None else self.stats.max_memory_bytes

    def revisions(self) -> frozenset[str]:
        """Returns the model revisions of the ready workers."""
        return frozenset(each.revision for each in self._workers if each.state == READY)

    @property
    def models(self) -> frozenset[str]:
        """The model names of all workers seen since this gateway started: workers may be absent for a moment."""
        return frozenset(self._models)

    @property
    def ops(self) -> frozenset[str]:
        """The operations that the last seen workers offer; empty if they are unknown."""
        return self._ops

    def full(self, lane: int) -> RedbatchError:
        """Returns the error for a request of a lane that is rejected because the queue is full."""
        half_tokens = 0 if self.stats is None else self.stats.tokens // 2
        jitter = random.random()  # noqa: S311 - spreads clients, guards no secret
        wait_s = retry_after_s(half_tokens, self.tokens_per_s[lane], jitter)
        return QueueFullError(f"The queue is full: try again in {ceil(wait_s)} s.", retry_after_s=wait_s)

    @property
    def long_entries(self) -> tuple[int, int]:
        """From how many tokens on an entry is long, and of how many inputs it is so with half; 0: unknown."""
        return self._long_backlog.min_tokens, self._long_backlog.max_batch_size

    def max_tokens(self, lane: int, budget_s: float, tokens: int, inputs: int) -> int:
        """Returns the maximum tokens of a lane with a request of these tokens and inputs, which has `budget_s` left."""
        overtaken = self._long_backlog.overtaken_tokens(tokens, inputs) if lane == INTERACTIVE else 0
        return max_tokens(self.tokens_per_s[lane], budget_s, overtaken)

    def limits(self, tenant: Tenant, budget_s: float) -> Limits | None:
        """Returns the limits of a tenant for a request that has `budget_s` seconds left; None if there are none."""
        if tenant is ANONYMOUS and not self._active.named:
            return None
        rate = self.tokens_per_s[INTERACTIVE] if tenant is ANONYMOUS else self._fleet_tokens_per_s
        return limits_of(tenant, self._active, rate, max_tokens(self.tokens_per_s[BULK], budget_s))

    def slow(self, lane: int, excess_tokens: int) -> RedbatchError:
        """Returns the error for a request whose lane holds `excess_tokens` more than can be processed in its time."""
        wait_s = retry_after_s(excess_tokens, self.tokens_per_s[lane], random.random())  # noqa: S311 - as above
        return OverloadedError(
            f"The queue is too long for this request's timeout: try again in {ceil(wait_s)} s, or allow more time.",
            retry_after_s=wait_s,
        )

    def missing(self) -> list[str]:
        """Returns the parts whose absence keeps the cluster from answering: redis, worker."""
        if self.stats is None or self.is_down:
            return ["redis"]
        if self.does_not_load:
            return ["worker"]
        return [] if self._workers and self._ready_within_grace() else ["worker"]

    @property
    def does_not_load(self) -> bool:
        """Whether the model loads on no host: no request or job is worth a wait."""
        return self._failure[0] == DOES_NOT_LOAD

    def _ready_within_grace(self) -> bool:
        """Whether a worker was ready within the grace period.

        While an engine restarts, the gateway stays in the load balancer: requests wait for the engine.
        """
        return time.monotonic() - max(self._ready_at.values(), default=-inf) <= self._worker_grace_s

    def alive(self) -> bool:
        """Whether the event loop still runs."""
        return time.monotonic() - self._last_beat_at < 10 * POLL_INTERVAL_S + 10.0
