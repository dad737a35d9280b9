"""The tenant of a request, and its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.settings import GatewaySettings
from api.tenants import ANONYMOUS, Tenant, find_refusal, limits_of, max_part, tenant_from_header, tenant_from_key
from shared.api_keys import new_key
from shared.errors import InvalidRequestError
from shared.tenants import NO_QUOTA, ActiveTenants, Limits, Quota

UNLIMITED = GatewaySettings().tenants
LIMITED = GatewaySettings(tenant_tokens_per_s=50.0).tenants


def test_a_header_names_a_tenant() -> None:
    """X-Tenant names the tenant; without it the request is anonymous, with the default limits."""
    assert tenant_from_header({}, UNLIMITED) is ANONYMOUS
    assert tenant_from_header({"x-tenant": "web"}, UNLIMITED) == Tenant("web", NO_QUOTA)
    assert tenant_from_header({"x-tenant": "web"}, LIMITED) == Tenant("web", Quota(50.0, 500))
    assert tenant_from_header({}, LIMITED) == Tenant("", Quota(50.0, 500))


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "a\n"])
def test_an_invalid_name_is_refused(name: str) -> None:
    """An invalid X-Tenant is refused, because names are written to Redis, where people read them."""
    with pytest.raises(InvalidRequestError, match="X-Tenant"):
        tenant_from_header({"x-tenant": name}, UNLIMITED)


def test_a_key_has_a_tenant_and_its_quota() -> None:
    """A key without a tenant is a tenant itself; a key without a rate has the default rate."""
    quota = Quota(tokens_per_s=7.0, burst_tokens=9, weight=2.0)
    key, _ = new_key(("embed",), tenant="web", quota=quota)
    assert tenant_from_key(key.key_id, key.tenant, key.quota, LIMITED) == Tenant("web", quota, key.key_id)
    key, _ = new_key(("embed",), quota=Quota(daily_tokens=5))
    assert tenant_from_key(key.key_id, key.tenant, key.quota, LIMITED) == Tenant(
        key.key_id, Quota(50.0, 500, 5), key.key_id
    )
    assert tenant_from_key(key.key_id, key.tenant, key.quota, UNLIMITED) == Tenant(
        key.key_id, Quota(daily_tokens=5), key.key_id
    )


def test_a_share_is_by_weight_among_active_tenants() -> None:
    """A tenant alone has the whole share; anonymous requests have no limits while no named tenant is active."""
    assert limits_of(ANONYMOUS, ActiveTenants(), 100.0, 5) is None
    assert limits_of(ANONYMOUS, ActiveTenants(1.0, 0.0), 100.0, 5) is None, "which is itself"
    heavy = Tenant("a", Quota(weight=3.0))
    assert limits_of(heavy, ActiveTenants(), 100.0, 5) == Limits(heavy.quota, 80.0, 5, is_alone=True)
    assert limits_of(heavy, ActiveTenants(3.0, 3.0), 100.0, 5) == Limits(heavy.quota, 80.0, 5, is_alone=True)
    assert limits_of(heavy, ActiveTenants(4.0, 3.0), 100.0, 5) == Limits(heavy.quota, 60.0, 5)
    assert limits_of(ANONYMOUS, ActiveTenants(4.0, 3.0), 100.0, 5) == Limits(NO_QUOTA, 20.0, 5)
    assert limits_of(ANONYMOUS, ActiveTenants(1.0, 1.0), 100.0, 5) == Limits(NO_QUOTA, 40.0, 5), (
        "beside one that has a name"
    )
    assert limits_of(heavy, ActiveTenants(4.0, 4.0), 0.0, 5) == Limits(heavy.quota, 0.0, 5)


@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    maximum=st.integers(1, 200),
    share=st.floats(0.1, 0.95),
    order=st.lists(st.integers(0, 5), min_size=500, max_size=500),
)
def test_tenants_share_a_resource(weights: list[float], maximum: int, share: float, order: list[int]) -> None:
    """In any order of requests, each holds at most its share, and the first unit is refused only if none is free."""
    held = [0] * len(weights)
    for each in order:
        tenant = each % len(weights)
        total = sum(held) + 1
        refusal = find_refusal(held[tenant] + 1, total, maximum, weights[tenant], share)
        held[tenant] += refusal is None
        assert held[tenant] or (refusal == "full" and total > maximum)
    for tenant, amount in enumerate(held):
        assert amount <= max(1.0, max_part(weights[tenant], share) * maximum + 1e-6)
    assert sum(held) <= maximum


def test_a_share_of_one_is_no_bound_of_a_tenant() -> None:
    """A tenant may then hold all there is."""
    assert find_refusal(100, 100, 100, 1.0, 1.0) is None
    assert find_refusal(1, 101, 100, 1.0, 1.0) == "full"


@pytest.mark.parametrize(
    ("held", "total", "refusal"), [(80, 80, None), (81, 81, "share"), (81, 101, "share"), (80, 101, "full")]
)
def test_a_refusal_names_its_cause(held: int, total: int, refusal: str | None) -> None:
    """A tenant that would have more than a lone one may is itself the cause, also if nothing is free."""
    assert find_refusal(held, total, 100, 1.0, 0.8) == refusal
