"""Whose share of what a gateway has only once a request takes: its tenant's, or its address'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.http.client_connection import client_address
from api.http.connection_table import address_group
from api.http.request_log import TENANT
from api.tenants import ANONYMOUS, ShareHolder, Tenant

if TYPE_CHECKING:
    from starlette.types import Scope


def share_holder_of(scope: Scope) -> ShareHolder:
    """Returns the tenant of a request with an API key, otherwise its address: without a key, any name can be sent."""
    tenant: Tenant = scope["state"].get(TENANT, ANONYMOUS)
    if tenant.key_id:
        return ShareHolder(f"tenant {tenant.name}", tenant.quota.weight)
    return holder_of_address(client_address(scope))


def holder_of_address(address: str) -> ShareHolder:
    """Returns the client that an address stands for; a proxy may pass on what is none."""
    try:
        group = address_group(address)
    except ValueError:
        group = address
    return ShareHolder(f"address {group}")
