"""What tenants pay beside their submits: for cached vectors, if `cache_hits_count` is set; and what they get back."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from api import metrics
from api.dialects.request import MAX_TIMEOUT_MS, InferenceRequest
from api.dispatch.admission import quota_error
from api.tenants import Tenant
from shared import charges
from shared.charges import Charge
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.unexpected_replies import record_failing_call
from shared.tenants import NO_WAIT, Limits, QuotaWait

log = structlog.get_logger()

CHARGE_TIMEOUT_S = 0.1
"""Maximum wait for a charge: the cache must not make requests slower than a model. The tenant is charged later then."""

MAX_CHARGES_PER_CALL = 256
MAX_WAITING_CHARGES = 16_384
"""Charges and refunds that wait for a slow Redis; further ones are not made."""


class Charges:
    """Charges tenants for cached vectors, and gives tokens back. Charges of the same moment share one call.

    Args:
        connection: used only for this.
        keys: Redis keys of the queue.
        limits: returns the limits of a tenant for a time budget (s).
    """

    def __init__(
        self, connection: RedisConnection, keys: Keys, limits: Callable[[Tenant, float], Limits | None]
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._limits = limits
        self._waiting: deque[tuple[Charge, asyncio.Future[QuotaWait]]] = deque()
        self._wake = asyncio.Event()

    async def charge(self, request: InferenceRequest, tokens: int, *, may_refuse: bool) -> None:
        """Charges the tenant of a request for the tokens of its cached vectors, unless it has no quota.

        Raises:
            RedbatchError: its quota does not allow them, and the answer `may_refuse`; else the quota is overdrawn.
        """
        tenant, quota = request.tenant.name, request.tenant.quota
        limits = self._limits(request.tenant, request.timeout_ms / 1000)
        if limits is None or not (quota.tokens_per_s or quota.daily_tokens):
            return
        if len(self._waiting) >= MAX_WAITING_CHARGES:
            metrics.UNCHARGED_TOKENS.inc(tokens)
            return
        future: asyncio.Future[QuotaWait] = asyncio.get_running_loop().create_future()
        self._waiting.append((Charge(tenant, limits, tokens, may_refuse), future))
        self._wake.set()
        try:
            async with asyncio.timeout(CHARGE_TIMEOUT_S):
                wait = await future
        except TimeoutError:
            return
        if wait.ms:
            jitter = random.random()  # noqa: S311 - spreads clients
            raise quota_error(tokens, quota, wait, jitter)

    def refund(self, tenant: Tenant, tokens: int) -> None:
        """Soon gives a tenant back the tokens that it was charged for entries of which nothing ran.

        Once: if Redis does not answer, to repeat it might give them back twice. Tokens that were charged on the day
        before no longer count, and no request is older than the longest timeout.
        """
        limits = self._limits(tenant, 0.0) if tokens else None
        if limits is None or len(self._waiting) >= MAX_WAITING_CHARGES:
            return
        future: asyncio.Future[QuotaWait] = asyncio.get_running_loop().create_future()
        future.set_result(NO_WAIT)  # no request waits for it
        self._waiting.append((Charge(tenant.name, limits, -tokens, may_refuse=False, age_ms=MAX_TIMEOUT_MS), future))
        self._wake.set()

    async def run(self) -> None:
        """Charges and gives back until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                size = min(len(self._waiting), MAX_CHARGES_PER_CALL)
                await self._charge_batch([self._waiting.popleft() for _ in range(size)])

    async def _charge_batch(self, batch: Sequence[tuple[Charge, asyncio.Future[QuotaWait]]]) -> None:
        """Charges tenants; those whose requests no longer wait, without refusing."""
        batch_charges = [each._replace(may_refuse=False) if future.done() else each for each, future in batch]
        waits: Sequence[QuotaWait] | None = None
        try:
            waits = await charges.charge(self._connection, self._keys, batch_charges)
        except RedisUnreachableError as error:
            log.debug("tenants are not charged", reason=error.log_message)
            record_failing_call("tenants are not charged", error)
        finally:
            if waits is None:
                metrics.UNCHARGED_TOKENS.inc(sum(max(0, each.tokens) for each in batch_charges))
            for (charge, future), wait in zip(batch, waits or [NO_WAIT] * len(batch), strict=True):
                if not future.done():
                    future.set_result(wait)
                elif wait.ms and charge.may_refuse:  # answered meanwhile, and refused too late: it overdraws the quota
                    self._waiting.append((charge._replace(may_refuse=False), future))
