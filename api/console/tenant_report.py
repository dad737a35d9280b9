"""What tenants have used lately, and their limits, for any number of viewers: one read of Redis is for all of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import orjson

from api.console.shared_reading import SharedReading
from api.console.tenant_rows import tenant_rows
from api.settings_groups import TenantSettings
from api.tenants import tenant_from_key
from shared import api_keys
from shared.api_keys import ApiKey
from shared.connection import RedisConnection
from shared.shard_connections import ShardConnection, try_shards
from shared.tenants import NO_QUOTA, Quota
from shared.usage import read_hours
from shared.usage_counts import Usage, UsageHour, UsageReport
from shared.usage_hours import HOUR_S, UsageRange, name_of_day, name_of_hour

FRESH_S = 5.0
"""A report that is younger than this is returned again."""

NUM_HOURS = 2
"""The present hour and the one before: usage is kept by whole hours."""


class TenantReport:
    """Reads usage and API keys, once for all viewers.

    Args:
        usage_readers: connections to each Redis that has usage.
        key_shards: each Redis that has API keys; None if the gateway requires none.
        defaults: the default limit of tenants.
    """

    def __init__(
        self,
        usage_readers: Sequence[RedisConnection],
        key_shards: Sequence[ShardConnection] | None,
        defaults: TenantSettings,
    ) -> None:
        self._usage_readers, self._key_shards, self._defaults = usage_readers, key_shards, defaults
        self._reading = SharedReading(self._read, FRESH_S)

    async def as_json(self) -> bytes:
        """Returns the report as JSON, with its age. Raises RedisUnreachableError."""
        return await self._reading.as_json()

    async def stop(self) -> None:
        """Ends a read that is under way."""
        await self._reading.stop()

    async def _read(self) -> str:
        end = int(time.time()) // HOUR_S + 1
        hours = UsageRange(end - NUM_HOURS, end)
        report = UsageReport(["tenant"])
        async for hour, rows in read_hours(self._usage_readers, range(*hours)):
            report.add(UsageHour(name_of_hour(hour), name_of_day(hour), rows))
        usage: dict[str, Usage] = {group[0]: row for group, row in report.rows()}
        default = tenant_from_key("", "", NO_QUOTA, self._defaults).quota
        since, until = hours.names
        rows_and_rest = tenant_rows(usage, await self._read_quotas(), default)
        return orjson.dumps({"from": since, "to": until, **rows_and_rest}).decode()

    async def _read_quotas(self) -> dict[str, list[Quota]] | None:
        """Returns the quotas of the valid keys of each tenant. Raises RedisUnreachableError: no Redis answers."""
        if self._key_shards is None:
            return None
        answers, errors = await try_shards(self._key_shards, lambda shard: api_keys.read_all(shard.connection))
        if errors and not answers:
            raise next(iter(errors.values()))
        now_ms = time.time() * 1000
        keys = {key.key_id: key for each in answers.values() for key in each if _may_request(key, now_ms)}
        quotas: dict[str, list[Quota]] = defaultdict(list)
        for key in keys.values():
            tenant = tenant_from_key(key.key_id, key.tenant, key.quota, self._defaults)
            quotas[tenant.name].append(tenant.quota)
        return quotas


def _may_request(key: ApiKey, now_ms: float) -> bool:
    """Whether a key is valid for requests or jobs."""
    return key.is_live(now_ms) and bool({"embed", "jobs"} & set(key.scopes))
