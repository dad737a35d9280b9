"""Settings of the load: each a flag of `redbatch bench`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_CLIENTS = 64
DEFAULT_MAX_CONNECTIONS = 4_096
DEFAULT_DURATION_S = 10.0
GATEWAY_TIMEOUT_MS = 10_000
GATEWAY_TIMEOUT_PER_INPUT_MS = 50
"""A gateway gives a request so much time, unless it was set up otherwise."""

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Returns a duration in seconds: of `500ms`, `10s`, `2m` or `1h`. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("write a duration like 500ms, 10s or 2m")
    return float(found[1]) * UNITS_S[found[2]]


def _validate_duration(text: str) -> str:
    parse_duration(text)
    return text


def _validate_positive(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("must be longer than nothing")
    return text


Duration = Annotated[str, AfterValidator(_validate_duration)]
PositiveDuration = Annotated[str, AfterValidator(_validate_positive)]


class TextSettings(BaseSettings):
    """What is sent, from command-line flags and `REDBATCH_*` variables."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True, extra="ignore")

    mix: Literal["short", "mixed"] = Field(
        default="short",
        description="Built-in texts: short (11 to 19 tokens, 15 on average) or mixed (log-normal lengths: "
        "39 on average, half under 28, 5 % over 105, none over 256).",
    )
    texts: Path | None = Field(
        default=None, description='Texts of your own: one a line, or a .jsonl with {"text": "..."} a line.'
    )
    seed: int = Field(default=1, description="Seed of texts and arrivals: the same seed, the same load.")
    inputs_per_request: int = Field(default=1, ge=1, le=100_000, description="Texts in one request.")


class BenchSettings(TextSettings):
    """What the load looks like."""

    clients: int | None = Field(
        default=None,
        ge=1,
        le=60_000,
        description=f"Closed loop: how many clients, each with one request in flight ({DEFAULT_CLIENTS}). "
        f"With --rate: the most connections ({DEFAULT_MAX_CONNECTIONS:,}).",
    )
    rate: float | None = Field(
        default=None, gt=0, le=1_000_000, description="Open loop: requests due each second, whatever the server does."
    )
    arrivals: Literal["poisson", "bursty"] = Field(
        default="poisson",
        description="How an open loop spaces them: poisson, or bursty (four times the rate for 0.5 s, none for 1.5 s).",
    )
    duration: PositiveDuration | None = Field(
        default=None, description="How long to measure: 500ms, 10s, 2m (10s, when --requests is not given)."
    )
    requests: int | None = Field(default=None, ge=1, description="Measure so many requests, in place of a duration.")
    warmup: Duration = Field(default="1s", description="How long to load the server first, unmeasured.")
    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=300_000,
        description="Sent as X-Timeout-Ms; a later answer counts as late. When not given, nothing is sent, and late is "
        "later than a gateway's default: 10 s and 50 ms for each text.",
    )
    out: Path | None = Field(
        default=None, description="Write settings and all that was measured to this file, as JSON."
    )
    plot: Path | None = Field(default=None, description="Draw rates and latencies to this file (.png, .svg, .pdf).")

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration is not None and self.requests is not None:
            raise ValueError("--duration and --requests exclude each other")
        return self

    @property
    def duration_s(self) -> float | None:
        """How long to measure; None: until `requests` are answered."""
        if self.requests is not None:
            return None
        return DEFAULT_DURATION_S if self.duration is None else parse_duration(self.duration)

    @property
    def warmup_s(self) -> float:
        """The load before that."""
        return parse_duration(self.warmup)

    @property
    def connections(self) -> int:
        """The most connections at once."""
        return self.clients or (DEFAULT_CLIENTS if self.rate is None else DEFAULT_MAX_CONNECTIONS)

    @property
    def late_after_s(self) -> float:
        """An answer that takes longer is late."""
        return (self.timeout_ms or GATEWAY_TIMEOUT_MS + GATEWAY_TIMEOUT_PER_INPUT_MS * self.inputs_per_request) / 1000
