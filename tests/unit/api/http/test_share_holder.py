"""Whose share a request takes."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.request_log import TENANT
from api.http.share_holder import share_holder_of
from api.tenants import Tenant
from shared.tenants import Quota


def scope(address: str | None, tenant: Tenant | None = None) -> dict[str, Any]:
    """Returns the scope of a request."""
    return {"client": address and (address, 1_234), "state": {TENANT: tenant} if tenant else {}}


def test_a_request_with_an_api_key_counts_for_its_tenant() -> None:
    """Whatever address it comes from, with the weight of the key."""
    tenant = Tenant("10.0.0.1", Quota(weight=3), key_id="f00")
    assert share_holder_of(scope("10.0.0.1", tenant)) == share_holder_of(scope("::1", tenant))
    assert share_holder_of(scope("::1", tenant)).weight == 3
    assert share_holder_of(scope("10.0.0.1", tenant)).name != share_holder_of(scope("10.0.0.1")).name


def test_no_address_is_a_tenant() -> None:
    """A proxy may pass on whatever its client calls its address."""
    tenant = Tenant("bob", key_id="f00")
    assert share_holder_of(scope("tenant bob")).name != share_holder_of(scope("::1", tenant)).name


@pytest.mark.parametrize(
    ("address", "same", "other"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"),
        ("2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"),
        ("made:up", "made:up", "made up"),
    ],
)
def test_a_request_without_a_key_counts_for_its_address(address: str, same: str, other: str) -> None:
    """X-Tenant without a key changes nothing: a client could send any name."""
    holder = share_holder_of(scope(address))
    assert holder == share_holder_of(scope(same)) == share_holder_of(scope(address, Tenant("a")))
    assert holder != share_holder_of(scope(other))
    assert share_holder_of(scope(None)) == share_holder_of(scope("")) != holder
