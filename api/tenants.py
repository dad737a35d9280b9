"""Whose a request is, and what these may have. Pure.

A tenant that asks for more than its share of what the fleet gets done goes on in the bulk lane with the rest: there it
has whatever the others leave, and cannot hold them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import InvalidRequest
from shared.tenants import NO_QUOTA, TENANT, Active, Limits, Quota

if TYPE_CHECKING:
    from api.settings import GatewaySettings
    from shared.api_keys import AccessKey

HEADER = "x-tenant"
SHARED = 0.8
"""So much of what the fleet gets done tenants have between them in the first lane. Of the rest bulk has a part of its
own; and where a lane is used to the full, its queue is long."""

BURST_S = 10.0
"""A bucket holds what flows into it in so long, unless its size is set."""


class Tenant(NamedTuple):
    """Who asks, and what it may have. Those who say no name are one."""

    name: str = ""
    quota: Quota = NO_QUOTA


NOBODY = Tenant()
"""Who says no name and may have anything."""


def by_header(headers: Mapping[str, str], settings: GatewaySettings) -> Tenant:
    """Returns the tenant that a request without a key names. Raises InvalidRequest: that is no name."""
    name = headers.get(HEADER)
    if name is None:
        return Tenant("", _whole(NO_QUOTA, settings)) if settings.tenant_tokens_per_s else NOBODY
    if not TENANT.fullmatch(name):
        raise InvalidRequest("X-Tenant: send up to 64 letters, digits, dots, dashes and underscores.")
    return Tenant(name, _whole(NO_QUOTA, settings))


def by_key(key: AccessKey, settings: GatewaySettings) -> Tenant:
    """Returns the tenant of a key. One without a tenant stands for itself."""
    return Tenant(key.tenant or key.key_id, _whole(key.quota, settings))


def limits_of(tenant: Tenant, active: Active, fleet_tokens_per_s: float, most_bulk_tokens: int) -> Limits | None:
    """Returns what a tenant is held to; None for nobody as long as nobody has a name.

    Args:
        tenant: who asks.
        active: who else has had something lately.
        fleet_tokens_per_s: what the fleet gets done; 0 while unknown.
        most_bulk_tokens: may be in the bulk lane with its request.
    """
    if tenant == NOBODY and not active.named:
        return None
    weight = tenant.quota.weight
    beside = weight if tenant.name else active.named + weight
    return Limits(tenant.quota, SHARED * fleet_tokens_per_s * weight / max(active.weights, beside), most_bulk_tokens)


def _whole(quota: Quota, settings: GatewaySettings) -> Quota:
    """Returns a quota with what holds for everyone, where it is silent."""
    rate, burst = quota.tokens_per_s, quota.burst_tokens
    if not rate:
        rate, burst = settings.tenant_tokens_per_s, settings.tenant_burst_tokens
    return replace(quota, tokens_per_s=rate, burst_tokens=burst or int(rate * BURST_S)) if rate else quota
