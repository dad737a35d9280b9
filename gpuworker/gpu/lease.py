"""One lease of a GPU: taken, renewed at a third of its lifetime, given back, or lost.

When it ends is computed on this host's monotonic clock, from before Redis was asked: whatever the way to Redis and back
took, it is over here before it is over there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.gpu.slots import slots_of
from gpuworker.settings import WorkerSettings
from shared import leases
from shared.errors import RedisUnreachable
from shared.keys import Pool
from shared.leases import Lease
from shared.connection import Link

log = structlog.get_logger()

POLL_S = 0.5
"""A slot whose holder was killed is found free by whoever waits within so long after it has run out."""

TURN_POLL_S = 0.1
"""The same where workers take turns. Who is next is woken when a slot is given back: this is for those who died."""

RETRY_S = 0.2
SAME_S = 0.1
PATIENCE = 5
"""Who has not asked for so many polls does not wait any more."""


class Holder:
    """Takes a lease and keeps it.

    Args:
        settings: of the worker.
        worker: its name.
        link: a connection of its own.
        renewed: told until when (monotonic clock) the engine may use the GPU, whenever that changes.

    Attributes:
        lease: what it holds; None while it holds nothing.
        until: when its engine has to have ended, if nothing more is heard of it.
    """

    def __init__(self, settings: WorkerSettings, worker: str, link: Link, renewed: Callable[[float], None]) -> None:
        self._turns = settings.gpu_lease == "batch"
        self._slots = slots_of(settings.gpu_lease_gpus, settings.gpu_lease_per_gpu, settings.device, fixed=self._turns)
        self._owner = f"{worker}:{secrets.token_hex(8)}"  # another process under the same name is another holder
        self._pool = Pool(settings.gpu_pool)
        self._link = link
        self._ttl_s, self._margin_s = settings.gpu_lease_ttl_s, settings.gpu_lease_margin_s
        self._renewed = renewed
        self.lease: Lease | None = None
        self.until = 0.0
        metrics.LEASE_LEFT.set_function(self._left_s)

    @property
    def slot(self) -> str:
        """The slot that it holds; empty without one."""
        return "" if self.lease is None else self.lease.slot

    @property
    def over(self) -> bool:
        """Whether its time is over, but for what two processes that look at one clock may differ by."""
        return time.monotonic() >= self.until - SAME_S

    async def take(self) -> Lease:
        """Waits until it holds a slot."""
        began = time.monotonic()
        poll_s = TURN_POLL_S if self._turns else POLL_S
        patience_ms = int(1000 * PATIENCE * poll_s) if self._turns else 0
        warned = False
        while True:
            try:
                answer = await self._ask(self._slots, patience_ms)
                if isinstance(answer, Lease) and self.over:  # this process stood still on the way
                    await self.leave()
                    continue
                warned = False
                if isinstance(answer, Lease):
                    metrics.LEASE_WAIT.observe(time.monotonic() - began)
                    return answer
                # Not until it runs out: it may be given back before, and that wakes nobody where it is for any GPU.
                wait_s = min(poll_s, max(0.01, answer / 1000))
                await (
                    leases.wait(self._link, self._pool, self._owner, wait_s) if self._turns else asyncio.sleep(wait_s)
                )
            except RedisUnreachable as error:
                log.log(logging.DEBUG if warned else logging.WARNING, "cannot take a GPU", reason=error.message)
                warned = True
                await asyncio.sleep(poll_s)

    async def keep(self) -> str:
        """Renews the lease until it is lost; returns why."""
        renewal = self.until + self._margin_s - 2 * self._ttl_s / 3
        warned = False
        while True:
            await asyncio.sleep(max(0.0, min(renewal, self.until) - time.monotonic()))
            if time.monotonic() >= self.until:  # as after a pause of this process, too
                return "it ran out"
            try:
                if not await self._renew():
                    return "it is another's"
                renewal, warned = self.until + self._margin_s - 2 * self._ttl_s / 3, False
            except (RedisUnreachable, TimeoutError):
                renewal = time.monotonic() + RETRY_S
                if not warned and self._left_s() < self._ttl_s / 3:
                    log.warning("the lease of the GPU is about to run out", left_s=round(self._left_s(), 2))
                    warned = True

    async def release(self) -> None:
        """Gives back what it holds, if anything. Where Redis cannot be reached, it runs out."""
        if self.lease is not None:
            await self.leave()

    async def leave(self) -> None:
        """Gives back whatever it holds, also what it was given in a moment in which nobody listened; waits no more."""
        self.lease = None
        try:
            await leases.release(self._link, self._pool, self._slots, self._owner)
        except RedisUnreachable as error:
            log.debug("a lease is not given back", reason=error.message)

    def lose(self, why: str) -> None:
        """It is not this worker's any more."""
        log.warning("the GPU is lost", why=why, slot=self.slot)
        metrics.LEASES_LOST.inc()
        self.lease = None

    async def _ask(self, slots: list[str], patience_ms: int) -> Lease | int:
        sent = time.monotonic()
        answer = await leases.take(
            self._link, self._pool, slots, self._owner, int(1000 * self._ttl_s), patience_ms=patience_ms
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
        async with asyncio.timeout(self.until - sent):
            if await leases.renew(self._link, self._pool, lease, self._owner, int(1000 * self._ttl_s)):
                self._extend(sent)
                return True
            # Redis has lost it, or somebody has deleted it. If nobody has it, the engine may go on.
            return isinstance(await self._ask([lease.slot], 0), Lease)

    def _extend(self, sent: float) -> None:
        self.until = sent + self._ttl_s - self._margin_s
        self._renewed(self.until)

    def _left_s(self) -> float:
        return max(0.0, self.until - time.monotonic()) if self.lease is not None else 0.0
