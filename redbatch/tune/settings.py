"""Settings of the search: each a flag of `redbatch tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from redbatch.bench.settings import Duration, PositiveDuration, TextSettings, parse_duration
from redbatch.tune.load_search import MAX_CLIENTS

TUNABLE_SETTINGS = ("max_batch_tokens", "max_batch_size", "max_batch_wait_ms", "runners")
MIN_DURATION_S = 3.0
MIN_WARMUP_S = 1.0
DURATION_BUDGETS = 5
WARMUP_BUDGETS = 2
"""A load must be long beside the time that a request may take."""


def _validate_names(text: str) -> str:
    if unknown := sorted(set(text.split(",")) - set(TUNABLE_SETTINGS)):
        raise ValueError(f"{', '.join(unknown)}: choose from {', '.join(TUNABLE_SETTINGS)}")
    return text


class TuneSettings(TextSettings):
    """What is looked for, and how."""

    p95_ms: float = Field(gt=0, le=60_000, description="The budget.")
    search: Annotated[str, AfterValidator(_validate_names)] = Field(
        default=",".join(TUNABLE_SETTINGS), description="What to change, with commas between them."
    )
    max_clients: int = Field(default=MAX_CLIENTS, ge=1, le=60_000, description="Most requests in flight to try.")
    duration: PositiveDuration | None = Field(
        default=None,
        description=f"How long each load is measured ({MIN_DURATION_S:g}s, or {DURATION_BUDGETS} budgets if longer).",
    )
    warmup: Duration | None = Field(
        default=None,
        description=f"Load before that, not measured ({MIN_WARMUP_S:g}s, or {WARMUP_BUDGETS} budgets if longer).",
    )
    rounds: int = Field(
        default=3, ge=1, le=100, description="Rounds in which what looked best runs in turn with the defaults."
    )
    out: Path | None = Field(default=None, description="Write everything that was measured to this file, as JSON.")

    @property
    def knobs(self) -> list[str]:
        """What to change."""
        return self.search.split(",")

    @property
    def duration_s(self) -> float:
        """How long a load is measured."""
        if self.duration is not None:
            return parse_duration(self.duration)
        return max(MIN_DURATION_S, DURATION_BUDGETS * self.p95_ms / 1000)

    @property
    def warmup_s(self) -> float:
        """The load before that."""
        if self.warmup is not None:
            return parse_duration(self.warmup)
        return max(MIN_WARMUP_S, WARMUP_BUDGETS * self.p95_ms / 1000)

    @property
    def load_s(self) -> float:
        """How long a load takes in all."""
        return self.warmup_s + self.duration_s
