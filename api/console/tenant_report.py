"""What tenants have used lately, and their limits, for any number of viewers: one read of Redis is for all of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import orjson

from api.console.shard_reads import read_in_time
from api.console.shared_reading import SharedReading
from api.console.tenant_rows import tenant_rows
from api.settings_groups import TenantSettings
from api.tenants import tenant_from_key
from shared import api_keys
from shared.api_keys import ApiKey
from shared.shard_connections import ShardConnection, try_shards
from shared.tenants import NO_QUOTA, Quota
from shared.usage import read_hours
from shared.usage_counts import Usage, UsageHour, UsageKey, UsageReport
from shared.usage_hours import HOUR_S, UsageRange, name_of_day, name_of_hour

RowT = TypeVar("RowT")

FRESH_S = 5.0
"""A report that is younger than this is returned again."""

NUM_HOURS = 2
"""The present hour and the one before: usage is kept by whole hours."""


class TenantReport(SharedReading):
    """Reads usage and API keys, once for all viewers.

    Args:
        shards: connections to each Redis that has usage and API keys.
        defaults: the default limit of tenants.
        requires_keys: whether the gateway requires API keys; otherwise they are not read.
    """

    def __init__(self, shards: Sequence[ShardConnection], defaults: TenantSettings, *, requires_keys: bool) -> None:
        self._shards, self._defaults, self._requires_keys = shards, defaults, requires_keys
        super().__init__(self._read, FRESH_S)

    async def _read(self) -> str:
        end = int(time.time()) // HOUR_S + 1
        hours = UsageRange(end - NUM_HOURS, end)
        report = UsageReport(["tenant"])
        for hour, rows in await self._read_all(partial(_read_usage, range(*hours))):
            report.add(UsageHour(name_of_hour(hour), name_of_day(hour), rows))
        usage: dict[str, Usage] = {group[0]: row for group, row in report.rows()}
        default = tenant_from_key("", "", NO_QUOTA, self._defaults).quota
        since, until = hours.names
        rows_and_rest = tenant_rows(usage, await self._read_quotas(), default)
        return orjson.dumps({"from": since, "to": until, **rows_and_rest}).decode()

    async def _read_all(self, read: Callable[[ShardConnection], Awaitable[Sequence[RowT]]]) -> list[RowT]:
        """Returns what all Redis have. Raises RedisUnreachableError: one does not answer in time."""
        answers, errors = await try_shards(self._shards, partial(read_in_time, read))
        for error in errors.values():
            raise error
        return [row for each in answers.values() for row in each]

    async def _read_quotas(self) -> dict[str, list[Quota]] | None:
        """Returns the quotas of the valid keys of each tenant."""
        if not self._requires_keys:
            return None
        raw = await self._read_all(lambda shard: api_keys.read_raw(shard.connection))
        found = await api_keys.parse_all(raw)  # after the reads, whose time is limited
        now_ms = time.time() * 1000
        keys = {key.key_id: key for key in found if _may_request(key, now_ms)}
        quotas: dict[str, list[Quota]] = defaultdict(list)
        for key in keys.values():
            tenant = tenant_from_key(key.key_id, key.tenant, key.quota, self._defaults)
            quotas[tenant.name].append(tenant.quota)
        return quotas


async def _read_usage(hours: range, shard: ShardConnection) -> list[tuple[int, dict[UsageKey, Usage]]]:
    return [each async for each in read_hours([shard.connection], hours)]


def _may_request(key: ApiKey, now_ms: float) -> bool:
    """Whether a key is valid for requests or jobs."""
    return key.is_live(now_ms) and bool({"embed", "jobs"} & set(key.scopes))
