"""Whose share of what a gateway has only once a request takes: its tenant's, or its address'."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from api.http.client_connection import client_address
from api.http.connection_table import address_group
from api.http.request_log import TENANT
from api.tenants import ANONYMOUS, ShareHolder

if TYPE_CHECKING:
    from starlette.types import Scope

    from api.tenants import Tenant

MAX_CACHED = 1_024
"""Addresses whose holders are kept: to find the network of an address of IPv6 takes microseconds, for each request."""


def share_holder_of(scope: Scope) -> ShareHolder:
    """Returns whose share a request takes, once its tenant is known; an address until then."""
    return share_holder(scope["state"].get(TENANT, ANONYMOUS), client_address(scope))


def share_holder(tenant: Tenant, address: str) -> ShareHolder:
    """Returns the tenant of a request with an API key, otherwise its address: without a key, any name can be sent."""
    if tenant.key_id:
        return ShareHolder(f"tenant {tenant.name}", tenant.quota.weight)
    return holder_of_address(address)


@lru_cache(MAX_CACHED)
def holder_of_address(address: str) -> ShareHolder:
    """Returns the client that an address stands for; a proxy may pass on what is none."""
    try:
        group = address_group(address)
    except ValueError:
        group = address
    return ShareHolder(f"address {group}")
