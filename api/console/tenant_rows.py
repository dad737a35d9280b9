"""What tenants have used lately and what limits they have, in one row for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

from shared.tenants import Quota
from shared.usage_counts import OTHER, Usage

MAX_TENANT_ROWS = 50
MAX_QUOTAS = 3
"""Different quotas of one tenant that a row has: its keys may have several."""

COLUMNS = ("requests", "refusals", "failures", "inputs", "tokens", "cached_tokens")


def tenant_rows(
    usage: Mapping[str, Usage], key_quotas: Mapping[str, Sequence[Quota]] | None, default: Quota
) -> dict[str, Any]:
    """Returns the rows of the tenants with the most tokens, and how many others there are.

    Args:
        usage: what each tenant has used.
        key_quotas: the quota of each valid API key of a tenant; None if the gateway requires no key.
        default: the quota of all tenants if it requires none.
    """
    names = {*usage, *(key_quotas or ())}
    sums = {name: usage.get(name, Usage()) for name in names}
    all_tokens = sum(each.tokens for each in usage.values())
    ordered = sorted(names, key=lambda name: (-sums[name].tokens, -sums[name].requests, name))
    rows = [
        {
            "tenant": name,
            **{each: getattr(sums[name], each) for each in COLUMNS},
            "token_share": sums[name].tokens / all_tokens if all_tokens else None,
            **_limits(name, key_quotas, default),
        }
        for name in ordered[:MAX_TENANT_ROWS]
    ]
    return {"tenants": rows, "left_out": len(ordered) - len(rows)}


def _limits(name: str, key_quotas: Mapping[str, Sequence[Quota]] | None, default: Quota) -> dict[str, Any]:
    """Returns the number of a tenant's keys (null if none is required), and its quotas."""
    if name == OTHER:  # several tenants
        return {"keys": None, "quotas": []}
    if key_quotas is None:
        return {"keys": None, "quotas": [asdict(default)]}
    quotas = key_quotas.get(name, ())
    different = sorted(set(quotas), key=astuple, reverse=True)
    return {"keys": len(quotas), "quotas": [asdict(each) for each in different[:MAX_QUOTAS]]}
