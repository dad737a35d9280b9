"""One lease of a GPU: acquired, renewed at a third of its lifetime, given back, or lost.

Its end is computed on this host's monotonic clock, from the time before the request to Redis. So the lease ends here
before it ends in Redis, however long the request took.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.gpu.lease_slots import slots_of
from gpuworker.settings_groups import LeaseSettings
from shared import gpu_leases
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.gpu_leases import Lease
from shared.keys import PoolKeys

log = structlog.get_logger()

POLL_S = 0.5
"""Poll interval: waiting workers notice an expired lease within this time, if its holder was killed."""

TURN_POLL_S = 0.1
"""Poll interval if workers take turns. A slot given back wakes the next worker: this is for holders that died."""

RETRY_S = 0.2
CLOCK_TOLERANCE_S = 0.1
"""By how much two processes that read the same clock may differ."""

MAX_MISSED_POLLS = 5
"""A worker that has not polled for this many intervals no longer counts as waiting."""


class GpuLease:
    """Acquires a lease and keeps it.

    Args:
        settings: of the leases.
        device: of the worker, as set.
        worker: its name.
        connection: used for leases only.
        on_extended: called with the time (monotonic clock) until which the engine may use the GPU, when that changes.

    Attributes:
        lease: the lease that is held; None without one.
        expires_at: when the engine must have ended, unless the lease is renewed (monotonic clock).
    """

    def __init__(
        self,
        settings: LeaseSettings,
        device: str,
        worker: str,
        connection: RedisConnection,
        on_extended: Callable[[float], None],
    ) -> None:
        self._takes_turns = settings.mode == "batch"
        self._slots = slots_of(settings.gpus, settings.per_gpu, device)
        self._owner = f"{worker}:{secrets.token_hex(8)}"  # another process with the same name is another holder
        self._pool = PoolKeys(settings.pool)
        self._connection = connection
        self._ttl_s, self._margin_s = settings.ttl_s, settings.margin_s
        # Two renewals are due before the lease is over. Each has half of its time left when it is late.
        self._late_s = [(part * settings.ttl_s - settings.margin_s) / 2 for part in (2 / 3, 1 / 3)]
        self._on_extended = on_extended
        self.lease: Lease | None = None
        self.expires_at = 0.0
        metrics.LEASE_LEFT.labels(worker).set_function(self._left_s)

    @property
    def slot(self) -> str:
        """The slot that is held; empty without one."""
        return "" if self.lease is None else self.lease.slot

    @property
    def is_over(self) -> bool:
        """Whether its time is over, within the tolerance of two processes' clocks."""
        return time.monotonic() >= self.expires_at - CLOCK_TOLERANCE_S

    async def acquire(self) -> Lease:
        """Waits until a slot is held."""
        began = time.monotonic()
        poll_s = TURN_POLL_S if self._takes_turns else POLL_S
        waiter_ttl_ms = int(1000 * MAX_MISSED_POLLS * poll_s) if self._takes_turns else 0
        warned = False
        while True:
            try:
                answer = await self._request(self._slots, waiter_ttl_ms)
                if isinstance(answer, Lease) and self.is_over:  # this process was paused before the answer arrived
                    await self.leave()
                    continue
                warned = False
                if isinstance(answer, Lease):
                    metrics.LEASE_WAIT.observe(time.monotonic() - began)
                    return answer
                # Not until it expires: it may be given back before, and that wakes no worker that waits for any GPU.
                wait_s = min(poll_s, max(0.01, answer / 1000))
                await (
                    gpu_leases.wait(self._connection, self._pool, self._owner, wait_s)
                    if self._takes_turns
                    else asyncio.sleep(wait_s)
                )
            except RedisUnreachableError as error:
                log.log(logging.DEBUG if warned else logging.WARNING, "cannot acquire a gpu", reason=error.log_message)
                warned = True
                await asyncio.sleep(poll_s)

    async def keep_until_lost(self) -> str:
        """Renews the lease until it is lost; returns the reason."""
        late_timers, renew_at = self._late_timers(), self._renewal_due()
        try:
            while True:
                await asyncio.sleep(max(0.0, min(renew_at, self.expires_at) - time.monotonic()))
                if time.monotonic() >= self.expires_at:  # also after a pause of this process
                    return "it has expired"
                try:
                    if not await self._renew():
                        return "another worker holds it"
                except (RedisUnreachableError, TimeoutError):
                    renew_at = time.monotonic() + RETRY_S
                    continue
                for timer in late_timers:
                    timer.cancel()
                late_timers, renew_at = self._late_timers(), self._renewal_due()
        finally:
            for timer in late_timers:
                timer.cancel()

    def _late_timers(self) -> list[asyncio.TimerHandle]:
        """Starts a timer for each renewal that is due before the lease is over: timers, since a call may hang."""
        loop, left_s = asyncio.get_running_loop(), self.expires_at - time.monotonic()
        return [loop.call_later(left_s - late_s, self._count_late_renewal) for late_s in self._late_s]

    def _count_late_renewal(self) -> None:
        log.warning("gpu lease renewal is late", left_s=round(self._left_s(), 2), slot=self.slot)
        metrics.LEASE_LATE_RENEWALS.inc()

    def _renewal_due(self) -> float:
        return self.expires_at + self._margin_s - 2 * self._ttl_s / 3

    async def release(self) -> None:
        """Gives back the lease that is held, if any. If Redis cannot be reached, it expires."""
        if self.lease is not None:
            await self.leave()

    async def leave(self) -> None:
        """Gives back every slot, even one granted in an answer that was not received; no longer counts as waiting."""
        self.lease = None
        try:
            await gpu_leases.release(self._connection, self._pool, self._slots, self._owner)
        except RedisUnreachableError as error:
            log.debug("gpu lease not given back", reason=error.log_message)

    def lose(self, reason: str) -> None:
        """Records that this worker no longer holds the lease."""
        log.warning("gpu lease lost", why=reason, slot=self.slot)
        metrics.LEASES_LOST.inc()
        self.lease = None

    async def _request(self, slots: list[str], waiter_ttl_ms: int) -> Lease | int:
        sent = time.monotonic()
        answer = await gpu_leases.acquire(
            self._connection, self._pool, slots, self._owner, int(1000 * self._ttl_s), waiter_ttl_ms=waiter_ttl_ms
        )
        if isinstance(answer, Lease):
            self.lease = answer
            self._extend(sent)
        return answer

    async def _renew(self) -> bool:
        lease = self.lease
        if lease is None:
            return False
        sent = time.monotonic()
        async with asyncio.timeout(self.expires_at - sent):
            if await gpu_leases.renew(self._connection, self._pool, lease, self._owner, int(1000 * self._ttl_s)):
                self._extend(sent)
                return True
            # Redis has lost it, or it was deleted by hand. If no other worker holds it, the engine may continue.
            return isinstance(await self._request([lease.slot], 0), Lease)

    def _extend(self, sent: float) -> None:
        self.expires_at = sent + self._ttl_s - self._margin_s
        self._on_extended(self.expires_at)

    def _left_s(self) -> float:
        return max(0.0, self.expires_at - time.monotonic()) if self.lease is not None else 0.0
