"""Use and limits of tenants as pydantic models, for OpenAPI only: `api.console.tenant_rows` makes it. Pure."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.dialects.response_models import examples

_QUOTA = {"tokens_per_s": 5_000.0, "burst_tokens": 50_000, "daily_tokens": 0, "weight": 2.0}
_TENANT = {
    "tenant": "web",
    "requests": 9_210,
    "refusals": 3,
    "failures": 0,
    "inputs": 27_630,
    "tokens": 331_560,
    "cached_tokens": 1_204,
    "token_share": 0.62,
    "keys": 1,
    "quotas": [_QUOTA],
}


class TenantQuota(BaseModel):
    """Limits of a tenant; 0 is no limit."""

    model_config = examples(_QUOTA)

    tokens_per_s: float
    burst_tokens: int = Field(description="At once.")
    daily_tokens: int = Field(description="On a day (UTC).")
    weight: float = Field(description="Of its share of the throughput, among tenants with recent requests.")


class ConsoleTenant(BaseModel):
    """What a tenant has used, and its limits."""

    model_config = examples(_TENANT)

    tenant: str
    requests: int = Field(description="Answered with a result.")
    refusals: int = Field(description="Answered with a status from 400 to 499.")
    failures: int = Field(description="Answered with a status from 500.")
    inputs: int
    tokens: int = Field(description="That the model has read.")
    cached_tokens: int
    token_share: float | None = Field(description="Its part of the tokens of all tenants; null while these are 0.")
    keys: int | None = Field(description="Valid API keys for requests or jobs; null if the gateway requires none.")
    quotas: list[TenantQuota] = Field(description="Those that its keys have, with the default limit; at most three.")


class ConsoleTenants(BaseModel):
    """Answer of GET /console/tenants: the tenants with the most tokens in the present hour and the one before."""

    model_config = examples(
        {
            "age_s": 1.214,
            "from": "2026-11-26T13:00:00Z",
            "to": "2026-11-26T15:00:00Z",
            "tenants": [_TENANT],
            "left_out": 0,
        }
    )

    age_s: float = Field(description="Time since Redis was read.")
    since: str = Field(alias="from")
    to: str
    tenants: list[ConsoleTenant]
    left_out: int = Field(description="Number of further tenants.")
