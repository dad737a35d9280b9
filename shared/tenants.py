"""Quotas and limits of tenants, as gateways, API keys and Redis use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from shared.messages import MAX_TOKENS

MAX_PER_S, MIN_WEIGHT, MAX_WEIGHT = 1e9, 0.01, 100.0

TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The pattern of a tenant's name."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a tenant: `tokens_per_s`, up to `burst_tokens` at once, and `daily_tokens` on a day (UTC).

    0 is no limit. Tenants with recent requests share the throughput by `weight`.
    """

    tokens_per_s: Annotated[float, Field(ge=0, le=MAX_PER_S)] = 0.0
    burst_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    daily_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)] = 1.0


NO_QUOTA = Quota()


class Limits(NamedTuple):
    """Limits that apply to a tenant: its quota, and its share of the fleet's throughput (0: not known).

    Requests beyond its share go to bulk, where at most `max_bulk_tokens` may be, including this request, for an answer
    in time. While no other tenant is active (`is_alone`), they stay in the first lane as long as that is short.
    """

    quota: Quota
    share_tokens_per_s: float
    max_bulk_tokens: int = MAX_TOKENS
    is_alone: bool = False


UNBOUNDED = 2**50
"""A bound that nothing reaches; Lua has only the integers up to 2**53."""


class JobBounds(NamedTuple):
    """Bounds of all jobs that have not ended, uploads included: `jobs`, inputs without a result, and bytes of inputs.

    `upload_bytes` bounds the bytes of the uploads alone, and `result_bytes` those of all results: kept, and still to
    come. `tenant_share` of each may be that of one tenant of weight 1
    that has limits, while there are no others; 1: all of it.
    """

    jobs: int = 2_000
    inputs: int = 2_000_000
    bytes: int = 2**31
    upload_bytes: int = 2**29
    result_bytes: int = UNBOUNDED
    tenant_share: float = 0.8


DEFAULT_JOB_BOUNDS = JobBounds()


class QuotaWait(NamedTuple):
    """After how many `ms` a quota allows tokens, and the `limit` that they exceed until then; 0 and "": now."""

    ms: int = 0
    limit: Literal["", "rate", "day"] = ""


NO_WAIT = QuotaWait()


class ActiveTenants(NamedTuple):
    """The sum of the weights of all tenants with recent interactive requests, and of those of them that have a name."""

    weights: float = 0.0
    named: float = 0.0


NO_ACTIVE_TENANTS = ActiveTenants()


def parse_quota_wait(ms: int, limit: bytes) -> QuotaWait:
    """Parses a wait as the scripts return it."""
    return QuotaWait(ms, "day" if limit == b"day" else "rate") if ms else NO_WAIT


def encode_limits(limits: Limits | None) -> str:
    """Returns the limits in the format that the script reads, or "" for None."""
    if limits is None:
        return ""
    quota = limits.quota
    numbers = (quota.tokens_per_s, quota.burst_tokens, quota.daily_tokens, quota.weight, *limits[1:])
    return " ".join([f"{each:.9g}" for each in numbers])
