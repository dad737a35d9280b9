"""Charges tenants for tokens beside those of their submits and uploads, or gives tokens back to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.keys import Keys
from shared.script_arguments import ChargeRow
from shared.tenants import Limits, QuotaWait, encode_limits, parse_quota_wait


class Charge(NamedTuple):
    """Tokens that a tenant with these limits has to pay; negative ones, it gets back.

    Unless it `may_refuse`, its quota is overdrawn where necessary: then the tenant's next requests wait longer. Tokens
    that it gets back were charged at most `age_ms` ago: they count for a day only if that was all of this day.
    """

    tenant: str
    limits: Limits
    tokens: int
    may_refuse: bool
    age_ms: int = 0


async def charge(connection: RedisConnection, keys: Keys, charges: Sequence[Charge]) -> list[QuotaWait]:
    """Charges tenants; returns for each charge how long its tenant would have to wait, if it is refused."""
    args: list[Argument] = []
    for each in charges:
        args += ChargeRow(each.tenant, encode_limits(each.limits), each.tokens, int(each.may_refuse), each.age_ms)
    return [parse_quota_wait(*each) for each in await connection.run(scripts.CHARGE, [keys.tenants], args)]
