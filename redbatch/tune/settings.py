"""Settings of the search: each a flag of `redbatch tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from redbatch.bench.settings import Duration, LongerThanNothing, TextSettings, seconds
from redbatch.tune.load_search import MOST_CLIENTS

KNOBS = ("max_batch_tokens", "max_batch_size", "max_batch_wait_ms", "runners")
LEAST_S = 3.0
LEAST_WARMUP_S = 1.0
BUDGETS = 5
WARMUP_BUDGETS = 2
"""A load must be long beside the time that a request may take."""


def _known(text: str) -> str:
    if unknown := sorted(set(text.split(",")) - set(KNOBS)):
        raise ValueError(f"{', '.join(unknown)}: choose from {', '.join(KNOBS)}")
    return text


class TuneSettings(TextSettings):
    """What is looked for, and how."""

    p95_ms: float = Field(gt=0, le=60_000, description="The budget.")
    search: Annotated[str, AfterValidator(_known)] = Field(
        default=",".join(KNOBS), description="What to change, with commas between them."
    )
    max_clients: int = Field(default=MOST_CLIENTS, ge=1, le=60_000, description="Most requests in flight to try.")
    duration: LongerThanNothing | None = Field(
        default=None, description=f"How long each load is measured ({LEAST_S:g}s, or {BUDGETS} budgets if longer)."
    )
    warmup: Duration | None = Field(
        default=None,
        description=f"Load before that, not measured ({LEAST_WARMUP_S:g}s, or {WARMUP_BUDGETS} budgets if longer).",
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
            return seconds(self.duration)
        return max(LEAST_S, BUDGETS * self.p95_ms / 1000)

    @property
    def warmup_s(self) -> float:
        """The load before that."""
        if self.warmup is not None:
            return seconds(self.warmup)
        return max(LEAST_WARMUP_S, WARMUP_BUDGETS * self.p95_ms / 1000)

    @property
    def load_s(self) -> float:
        """How long a load takes in all."""
        return self.warmup_s + self.duration_s
