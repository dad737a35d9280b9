"""Counts inputs that are answered from the cache against the quotas of tenants, if `cache_hits_count` is set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from api.dialects.request import InferenceRequest
from api.dispatch.admission import quota_error
from api.tenants import Tenant
from shared import cache
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.tenants import Limits

log = structlog.get_logger()

CHARGE_TIMEOUT_S = 0.1
"""A charge that takes longer may be lost: the cache must not make requests slower than a model."""


class CacheQuota:
    """Charges tenants for cached vectors.

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

    async def charge(self, request: InferenceRequest, tokens: int, *, may_refuse: bool) -> None:
        """Charges the tenant of a request for the tokens of its cached vectors, unless it has no quota.

        Raises:
            RedbatchError: its quota does not allow them, and the answer `may_refuse`; else the quota is overdrawn.
        """
        quota = request.tenant.quota
        limits = self._limits(request.tenant, request.timeout_ms / 1000)
        if limits is None or not (quota.tokens_per_s or quota.daily_tokens):
            return
        try:
            async with asyncio.timeout(CHARGE_TIMEOUT_S):
                wait_ms = await cache.charge(
                    self._connection, self._keys, request.tenant.name, limits, tokens, may_refuse=may_refuse
                )
        except (RedisUnreachableError, TimeoutError) as error:
            log.debug("cached vectors are not charged", reason=str(error))
            return
        if wait_ms:
            jitter = random.random()  # noqa: S311 - spreads clients
            raise quota_error(tokens, quota.daily_tokens, wait_ms, jitter)
