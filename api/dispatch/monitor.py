"""What this gateway knows of Redis and of the fleet, by asking once a second.

This is the circuit in front of Redis: while it is open, nobody waits who would wait in vain (`api.dispatch.admission.admit`),
and the questions are the probes that close it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf, nan

import structlog

from api import metrics
from api.dispatch.admission import Cluster, fleet_rate, most_tokens, retry_after_s
from api.tenants import NOBODY, Tenant, limits_of
from shared.process.tasks import wait_for_event
from shared import producer
from shared.errors import Overloaded, QueueFull, RedbatchError, RedisUnreachable
from shared.keys import BULK, INTERACTIVE, LANES, Keys
from shared.messages import READY, STATES, Heartbeat
from shared.connection import Link
from shared.producer import Pulse
from shared.tenants import NOBODY_ACTIVE, Limits

log = structlog.get_logger()

EVERY_S = 1.0
PROBE_EVERY_S = 0.25
"""While Redis is out of reach it is asked more often: nobody waits longer than need be for it to be back."""

FORGOTTEN_S = 5.0
"""What was seen so long ago is shown no more: a gateway that is cut off must not speak for all."""

SILENT_S = 1.0
"""An answer that takes longer may never come. Redis is out of reach since it was asked for it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Who is told what was seen: that the epoch has changed, so that everything in Redis may be gone; and the fleet."""

    loss: Callable[[], Awaitable[None]]
    fleet: Callable[[], None]


class Monitor:
    """Polls the queue's state, and notices when its data was lost.

    Args:
        link: a connection of its own.
        keys: the queue.
        worker_grace_s: how long a worker that is not ready counts for one that was.
        seen: who is told.
    """

    def __init__(self, link: Link, keys: Keys, worker_grace_s: float, seen: Seen) -> None:
        self._link = link
        self._keys = keys
        self._seen = seen
        self._pulse: Pulse | None = None
        self._down_since: float | None = None
        self._asked_at: float | None = None
        self._worker_seen_at: float | None = None
        self._ready_seen_at: float | None = None
        self._worker_grace_s = worker_grace_s
        self._tokens_per_s = [0.0 for _ in LANES]
        self._epoch = b""
        self._models: set[str] = set()
        self._had_epoch = False
        self._loss_told_at = -inf
        self._lost = asyncio.Event()
        self._round = time.monotonic()

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            await self.poll()
            self._seen.fleet()
            if self._lost.is_set():
                await self._look_after_loss()
            await wait_for_event(self._lost, EVERY_S if self._down_since is None else PROBE_EVERY_S)

    async def beat(self) -> None:
        """Notes that the event loop comes round, however long Redis takes for an answer; until cancelled."""
        while True:
            self._round = time.monotonic()
            metrics.REDIS_UP.set(not self._down_s(self._round))
            await asyncio.sleep(EVERY_S)

    async def poll(self) -> None:
        """Asks once."""
        asked = self._asked_at = time.monotonic()
        try:
            self._pulse = await producer.pulse(self._link, self._keys)
        except RedisUnreachable as error:
            if self._down_since is None:
                self._down_since = asked
                log.warning("Redis is out of reach", reason=error.message)
            elif asked - self._down_since > FORGOTTEN_S:
                _hide(self._keys.queue)
        else:
            metrics.REDIS_ROUND_TRIP.observe(time.monotonic() - asked)
            self._saw_workers(self._pulse)
            ready = [each for each in self._pulse.workers if each.state == READY]
            if ready:  # otherwise the last rate is a better guess than none: an engine may start again
                self._tokens_per_s[INTERACTIVE] = fleet_rate([each.tokens_per_s for each in ready])
                self._tokens_per_s[BULK] = fleet_rate([each.bulk_tokens_per_s for each in ready])
            self._down_since = None
            self.saw_epoch(self._pulse.epoch)
            _show(self._keys.queue, self._pulse)
            metrics.FLEET_RATE.labels(self._keys.queue).set(self._tokens_per_s[INTERACTIVE])
        finally:
            self._asked_at = None

    def _saw_workers(self, pulse: Pulse) -> None:
        """Notes when a worker last lived. It is not forgotten with the data of Redis, nor does an outage count."""
        now = time.monotonic()
        self._models.update(worker.model for worker in pulse.workers)
        if self._down_since is not None:
            away = now - self._down_since
            log.info("Redis answers again", after_s=round(away, 1))
            if self._worker_seen_at is not None:
                self._worker_seen_at += away
        if any(worker.state == READY for worker in pulse.workers):
            self._ready_seen_at = now
        if pulse.last_heartbeat_ms:
            seen_at = now - (pulse.now_ms - pulse.last_heartbeat_ms) / 1000
            self._worker_seen_at = max(seen_at, self._worker_seen_at or seen_at)

    def saw_epoch(self, epoch: bytes) -> None:
        """Takes in the epoch that an answer of Redis carried; empty means that there is none now."""
        if self._had_epoch and epoch != self._epoch:
            self._lost.set()
        self._epoch = epoch
        self._had_epoch = self._had_epoch or bool(epoch)

    async def _look_after_loss(self) -> None:
        now = time.monotonic()
        if now - self._loss_told_at > EVERY_S:  # one loss shows several times: no epoch, a gateway's, the new group's
            self._loss_told_at = now
            log.warning("the queue's data was lost or its group made anew: looking after all requests")
        self._lost.clear()  # before: it may be lost again meanwhile
        try:
            await self._seen.loss()
        except RedisUnreachable:
            self._lost.set()
            await asyncio.sleep(EVERY_S / 4)
        except Exception:
            self._lost.set()
            raise

    def cluster(self) -> Cluster:
        """Returns what is known now, for admission."""
        now = time.monotonic()
        down = self._down_s(now)
        if self._pulse is None:
            return Cluster(redis_down_s=down)
        unseen = None
        if self._pulse.workers:
            unseen = 0.0
        elif self._worker_seen_at is not None:
            unseen = max(0.0, now - down - self._worker_seen_at)
        return Cluster(down, unseen, self._pulse.memory_ratio)

    def _down_s(self, now: float) -> float:
        if self._down_since is not None:
            return now - self._down_since
        silent = 0.0 if self._asked_at is None else now - self._asked_at
        return silent if silent > SILENT_S else 0.0

    def workers(self) -> tuple[Heartbeat, ...]:
        """Returns the live workers, as last seen."""
        return () if self._pulse is None else self._pulse.workers

    def revisions(self) -> frozenset[str]:
        """Returns the revisions of the model that ready workers have."""
        return frozenset(each.revision for each in self.workers() if each.state == READY)

    @property
    def models(self) -> frozenset[str]:
        """What workers have called their model, since this gateway began: they may be gone for a moment."""
        return frozenset(self._models)

    def full(self, lane: int) -> RedbatchError:
        """Returns the error for a request of a lane that found the queue full."""
        half = 0 if self._pulse is None else self._pulse.tokens // 2
        wait = retry_after_s(half, self._tokens_per_s[lane], random.random())  # noqa: S311 - spreads clients, guards no secret
        return QueueFull(f"The queue is full: try again in {wait:.0f} s.", retry_after_s=wait)

    def most_tokens(self, lane: int, budget_s: float) -> int:
        """Returns how many tokens may be in a lane with a request that has so much time."""
        return most_tokens(self._tokens_per_s[lane], budget_s)

    def limits(self, tenant: Tenant, budget_s: float) -> Limits | None:
        """Returns what a tenant is held to whose request has so much time."""
        active = NOBODY_ACTIVE if self._pulse is None else self._pulse.tenants
        if tenant is NOBODY and not active.named:
            return None
        return limits_of(tenant, active, self._tokens_per_s[INTERACTIVE], self.most_tokens(BULK, budget_s))

    def slow(self, lane: int, excess_tokens: int) -> RedbatchError:
        """Returns the error for a request that had so many tokens too many before it in its lane."""
        wait = retry_after_s(excess_tokens, self._tokens_per_s[lane], random.random())  # noqa: S311 - as above
        return Overloaded(
            f"There is too much before this request for an answer in its time: try again in {wait:.0f} s, or allow "
            "more time.",
            retry_after_s=wait,
        )

    def missing(self) -> list[str]:
        """Returns what keeps the cluster from answering: redis, worker."""
        if self._pulse is None or self._down_s(time.monotonic()) > 0:
            return ["redis"]
        return [] if self._pulse.workers and self._ready_seen_within_grace() else ["worker"]

    def _ready_seen_within_grace(self) -> bool:
        """A worker whose engine starts again is no reason to leave the load balancer: requests wait for it."""
        return self._ready_seen_at is not None and time.monotonic() - self._ready_seen_at <= self._worker_grace_s

    def alive(self) -> bool:
        """Whether the event loop still comes round."""
        return time.monotonic() - self._round < 10 * EVERY_S + 10.0


def _show(queue: str, pulse: Pulse) -> None:
    for lane, entries, age_ms in zip(LANES, pulse.by_lane, pulse.ages_ms, strict=True):
        metrics.QUEUE_ENTRIES.labels(queue, lane).set(entries)
        metrics.QUEUE_AGE.labels(queue, lane).set(age_ms / 1000)
    metrics.QUEUE_PENDING.labels(queue).set(pulse.pending)
    metrics.QUEUE_INPUTS.labels(queue).set(pulse.inputs)
    metrics.QUEUE_TOKENS.labels(queue).set(pulse.tokens)
    metrics.DEAD_LETTERS.labels(queue).set(pulse.dead_letters)
    metrics.OPEN_JOBS.labels(queue).set(pulse.open_jobs)
    metrics.OWED_INPUTS.labels(queue).set(pulse.owed_inputs)
    metrics.REDIS_MEMORY.set(pulse.memory_ratio)
    metrics.REDIS_MEMORY_BYTES.set(pulse.memory_bytes)
    metrics.REDIS_NOT_WRITTEN.set(not pulse.persists)
    for state in STATES:
        metrics.WORKERS.labels(queue, state).set(sum(worker.state == state for worker in pulse.workers))


def _hide(queue: str) -> None:
    """Shows nothing any more of what Redis has said; not a number, where there is no way to show nothing."""
    metrics.forget(queue)
    for gauge in metrics.OF_REDIS:
        gauge.set(nan)
