"""Rows of tenants: those with the most tokens, with the limits of their valid keys."""

from __future__ import annotations

from api.console.tenant_rows import MAX_QUOTAS, MAX_TENANT_ROWS, tenant_rows
from shared.tenants import NO_QUOTA, Quota
from shared.usage_counts import OTHER, Usage

DEFAULT = Quota(tokens_per_s=100.0, burst_tokens=1_000)


def test_the_tenants_with_the_most_tokens_are_listed() -> None:
    """Up to a bound, with the number of the others."""
    usage = {f"t{number}": Usage(requests=1, tokens=number) for number in range(MAX_TENANT_ROWS + 7)}
    found = tenant_rows(usage, None, DEFAULT)
    assert found["left_out"] == 7
    total = sum(range(MAX_TENANT_ROWS + 7))
    assert [each["token_share"] for each in found["tenants"]] == [each["tokens"] / total for each in found["tenants"]]
    assert [each["tokens"] for each in found["tenants"]] == list(range(MAX_TENANT_ROWS + 6, 6, -1))


def test_without_keys_all_tenants_have_the_default_limit() -> None:
    """But not the row of those beyond the bound of usage, which are several."""
    rows = tenant_rows({"web": Usage(), OTHER: Usage(tokens=1)}, None, DEFAULT)["tenants"]
    assert [(each["tenant"], each["keys"], len(each["quotas"])) for each in rows] == [
        (OTHER, None, 0),
        ("web", None, 1),
    ]
    assert rows[1]["quotas"][0]["tokens_per_s"] == 100.0


def test_limits_are_those_of_the_keys() -> None:
    """Different ones once each, up to a bound; a tenant without a valid key has none, one without a request does."""
    many = [Quota(daily_tokens=each + 1) for each in range(2 * MAX_QUOTAS)]
    keys = {"web": [NO_QUOTA, DEFAULT, DEFAULT], "many": many}
    rows = {each["tenant"]: each for each in tenant_rows({"gone": Usage(3)}, keys, DEFAULT)["tenants"]}
    assert rows["gone"]["token_share"] is None
    assert (rows["gone"]["keys"], rows["gone"]["quotas"], rows["gone"]["requests"]) == (0, [], 3)
    assert (rows["web"]["keys"], [each["tokens_per_s"] for each in rows["web"]["quotas"]]) == (3, [100.0, 0.0])
    assert (rows["many"]["keys"], len(rows["many"]["quotas"])) == (2 * MAX_QUOTAS, MAX_QUOTAS)
