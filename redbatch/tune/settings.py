"""Settings of `redbatch tune`; each is a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from redbatch.bench.settings import Duration, PositiveDuration, TextSettings
from redbatch.times import parse_duration
from redbatch.tune.load_search import MAX_CLIENTS

TUNABLE_SETTINGS = ("max_batch_tokens", "max_batch_size", "max_batch_wait_ms", "runners")
MIN_DURATION_S = 3.0
MIN_WARMUP_S = 1.0
DURATION_BUDGETS = 5
WARMUP_BUDGETS = 2
"""A load must be long compared with the time that a request may take."""


def _split_names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _validate_names(text: str) -> str:
    if unknown := sorted(set(_split_names(text)) - set(TUNABLE_SETTINGS)):
        raise ValueError(f"{', '.join(unknown)}: choose from {', '.join(TUNABLE_SETTINGS)}")
    return text


class TuneSettings(TextSettings):
    """The latency budget, and how to search."""

    p95_ms: float = Field(gt=0, le=60_000, description="Latency budget: the 95th percentile, in ms.")
    search: Annotated[str, AfterValidator(_validate_names)] = Field(
        default=", ".join(TUNABLE_SETTINGS), description="Settings to search, separated by commas."
    )
    max_clients: int = Field(
        default=MAX_CLIENTS, ge=1, le=60_000, description="Maximum number of requests in flight to try."
    )
    duration: PositiveDuration | None = Field(
        default=None,
        description=f"Duration of each measurement ({MIN_DURATION_S:g}s, or {DURATION_BUDGETS} budgets if longer).",
    )
    warmup: Duration | None = Field(
        default=None,
        description=f"Unmeasured load before a measurement ({MIN_WARMUP_S:g}s, or {WARMUP_BUDGETS} budgets if longer).",
    )
    rounds: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Rounds in which the best candidates run again, alternating with the defaults.",
    )
    out: Path | None = Field(default=None, description="Write all measurements to this file, as JSON.")

    @property
    def setting_names(self) -> list[str]:
        """Names of the settings to search."""
        return _split_names(self.search)

    @property
    def duration_s(self) -> float:
        """Duration of a measurement, in seconds."""
        if self.duration is not None:
            return parse_duration(self.duration)
        return max(MIN_DURATION_S, DURATION_BUDGETS * self.p95_ms / 1000)

    @property
    def warmup_s(self) -> float:
        """Duration of the load before a measurement, in seconds."""
        if self.warmup is not None:
            return parse_duration(self.warmup)
        return max(MIN_WARMUP_S, WARMUP_BUDGETS * self.p95_ms / 1000)

    @property
    def load_s(self) -> float:
        """Total duration of a load, in seconds."""
        return self.warmup_s + self.duration_s
