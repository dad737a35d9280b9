"""Whose a request is, and what it is held to."""

from __future__ import annotations

import pytest

from api.settings import GatewaySettings
from api.tenants import NOBODY, Tenant, by_header, by_key, limits_of
from shared.api_keys import new_key
from shared.errors import InvalidRequest
from shared.tenants import NO_QUOTA, Active, Limits, Quota

FREE = GatewaySettings()
BOUND = GatewaySettings(tenant_tokens_per_s=50.0)


def test_a_header_names_a_tenant() -> None:
    """Without one it is nobody, with the limits that hold for everyone."""
    assert by_header({}, FREE) is NOBODY
    assert by_header({"x-tenant": "web"}, FREE) == Tenant("web", NO_QUOTA)
    assert by_header({"x-tenant": "web"}, BOUND) == Tenant("web", Quota(50.0, 500))
    assert by_header({}, BOUND) == Tenant("", Quota(50.0, 500))


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "a\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """It goes into Redis, and into what people read there."""
    with pytest.raises(InvalidRequest, match="X-Tenant"):
        by_header({"x-tenant": name}, FREE)


def test_a_key_has_a_tenant_and_its_quota() -> None:
    """One without a tenant stands for itself; one without a rate has that of everyone."""
    quota = Quota(tokens_per_s=7.0, burst_tokens=9, weight=2.0)
    key, _ = new_key(("embed",), tenant="web", quota=quota)
    assert by_key(key, BOUND) == Tenant("web", quota)
    key, _ = new_key(("embed",), quota=Quota(daily_tokens=5))
    assert by_key(key, BOUND) == Tenant(key.key_id, Quota(50.0, 500, 5))
    assert by_key(key, FREE) == Tenant(key.key_id, Quota(daily_tokens=5))


def test_a_share_is_by_weight_among_those_that_ask() -> None:
    """Alone it is all that there is to share; nobody is held to anything as long as nobody has a name."""
    assert limits_of(NOBODY, Active(), 100.0, 5) is None
    assert limits_of(NOBODY, Active(1.0, 0.0), 100.0, 5) is None, "which is itself"
    heavy = Tenant("a", Quota(weight=3.0))
    assert limits_of(heavy, Active(), 100.0, 5) == Limits(heavy.quota, 80.0, 5)
    assert limits_of(heavy, Active(3.0, 3.0), 100.0, 5) == Limits(heavy.quota, 80.0, 5)
    assert limits_of(heavy, Active(4.0, 3.0), 100.0, 5) == Limits(heavy.quota, 60.0, 5)
    assert limits_of(NOBODY, Active(4.0, 3.0), 100.0, 5) == Limits(NO_QUOTA, 20.0, 5)
    assert limits_of(NOBODY, Active(1.0, 1.0), 100.0, 5) == Limits(NO_QUOTA, 40.0, 5), "beside one that has a name"
    assert limits_of(heavy, Active(4.0, 4.0), 0.0, 5) == Limits(heavy.quota, 0.0, 5)
