"""The tenant of a request, and its limits. Pure.

A tenant that requests more than its share of the fleet's throughput continues in the bulk lane: there it uses the
capacity that other tenants leave, and cannot delay them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from shared.errors import InvalidRequestError
from shared.tenants import NO_QUOTA, TENANT, ActiveTenants, Limits, Quota

if TYPE_CHECKING:
    from api.settings_groups import TenantSettings

TENANT_HEADER = "x-tenant"
INTERACTIVE_SHARE = 0.8
"""Fraction of the fleet's throughput that tenants share in the interactive lane.

The rest is headroom: bulk has a guaranteed share, and a saturated lane builds a long queue.
"""

BURST_S = 10.0
"""Default size of a token bucket: the tokens that flow into it in this time (s)."""


class Tenant(NamedTuple):
    """The API client that a request counts for, and its quota. All clients without a name are one tenant.

    `key_id` is the API key of the request, for logs; "" if none is required.
    """

    name: str = ""
    quota: Quota = NO_QUOTA
    key_id: str = ""


ANONYMOUS = Tenant()
"""The tenant of requests without a name, while there is no default limit."""


class ShareHolder(NamedTuple):
    """Who shares what a gateway has only once: a tenant, or a client's address, which the name begins with.

    Its name alone says who it is: the keys of one tenant may have several weights.
    """

    name: str
    weight: float = 1.0


def tenant_from_header(headers: Mapping[str, str], defaults: TenantSettings) -> Tenant:
    """Returns the tenant that X-Tenant names. Raises InvalidRequestError: the name is not valid."""
    name = headers.get(TENANT_HEADER)
    if name is None:
        return Tenant("", _with_defaults(NO_QUOTA, defaults)) if defaults.tokens_per_s else ANONYMOUS
    if not TENANT.fullmatch(name):
        raise InvalidRequestError("X-Tenant: send up to 64 letters, digits, dots, dashes and underscores.")
    return Tenant(name, _with_defaults(NO_QUOTA, defaults))


def tenant_from_key(key_id: str, name: str, quota: Quota, defaults: TenantSettings) -> Tenant:
    """Returns the tenant of an API key that names this tenant. A key that names none ("") is a tenant itself."""
    return Tenant(name or key_id, _with_defaults(quota, defaults), key_id)


def limits_of(tenant: Tenant, active: ActiveTenants, fleet_tokens_per_s: float, max_bulk_tokens: int) -> Limits | None:
    """Returns the limits of a tenant; None for the anonymous tenant while no named tenant is active.

    Args:
        tenant: of the request.
        active: the tenants that were served recently.
        fleet_tokens_per_s: throughput of the fleet; 0 while unknown.
        max_bulk_tokens: maximum tokens in the bulk lane, with this request, for the request to end in time.
    """
    if tenant == ANONYMOUS and not active.named:
        return None
    weight = tenant.quota.weight
    total = max(active.weights, weight if tenant.name else active.named + weight)
    share = INTERACTIVE_SHARE * fleet_tokens_per_s * weight / total
    return Limits(tenant.quota, share, max_bulk_tokens, is_alone=total <= weight)


def find_refusal(held: int, total: int, maximum: int, weight: float, share: float) -> Literal["full", "share"] | None:
    """Returns why a tenant may not hold this much of a resource: it is `full`, or the tenant has its `share`.

    A tenant may hold up to a multiple of what is free. So any number of tenants share the resource by weight, and a
    part is left for the next. The last unit is for any tenant that holds no other. shared/lua/job_upload.lua has the
    same rule.

    Args:
        held: by the tenant, with what it requests.
        total: held by all, with that.
        maximum: of the resource.
        weight: of the tenant.
        share: the part of the resource that a single tenant of weight 1 may hold; 1: all of it.
    """
    free = maximum - total
    is_bounded = share < 1 and held > 1
    if free < 0:
        return "share" if is_bounded and held > max_part(weight, share) * maximum else "full"
    return "share" if is_bounded and held > _factor(weight, share) * free else None


def max_part(weight: float, share: float) -> float:
    """Returns the part of a resource that a tenant may hold while no other holds any, with arguments as above."""
    factor = _factor(weight, share)
    return factor / (1 + factor) if share < 1 else 1.0


def _factor(weight: float, share: float) -> float:
    """Returns how much a tenant may hold for each unit that is free."""
    return share / (1 - share) * weight if share < 1 else 0.0


def _with_defaults(quota: Quota, defaults: TenantSettings) -> Quota:
    """Returns a quota with the default rate limit, if the quota sets no rate."""
    rate, burst = quota.tokens_per_s, quota.burst_tokens
    if not rate:
        rate, burst = defaults.tokens_per_s, defaults.burst_tokens
    return replace(quota, tokens_per_s=rate, burst_tokens=burst or int(rate * BURST_S)) if rate else quota
