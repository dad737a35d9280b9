"""What the parts of the benchmark share: how long they may take, where they put files, and whom they tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Row
from bench.measurement import Measured
from bench.rounds import Round

MANY_CLIENTS = 5_000
MANY_LEAD_S = 2.5
ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: windows in seconds, the texts of the limit, requests of 1,000 texts by mix.

    `whole_grid` measures Redis' cost in every shape, not in one.
    """

    repetitions: int = 3
    warmup_s: float = 1.0
    window_s: float = 4.0
    cost_window_s: float = 3.0
    one_client_s: float = 5.0
    real_s: float = 8.0
    limit_texts: int = 768
    large_requests: Mapping[str, int] = field(default_factory=lambda: {"short": 3, "mixed": 2})
    whole_grid: bool = True


QUICK = Extent(
    repetitions=1,
    window_s=1.0,
    cost_window_s=1.0,
    one_client_s=1.0,
    real_s=3.0,
    limit_texts=384,
    large_requests={"short": 1, "mixed": 1},
    whole_grid=False,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a step runs: its extent, a folder for files, the round, and who is told what runs now."""

    extent: Extent
    folder: Path
    round: Round
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of work that is repeated in each round, and about how many seconds it takes."""

    part: str
    name: str
    seconds: float
    run: Callable[[Stage], Sequence[Row]]


def figures_of(measured: Measured) -> dict[str, float]:
    """Returns the figures that each served row has."""
    load, cost = measured.load, measured.cost
    figures = {
        "requests_per_s": measured.requests_per_s,
        "p50_ms": load.p50_ms,
        "p95_ms": load.p95_ms,
        "p99_ms": load.p99_ms,
        "max_ms": load.max_ms,
        ERRORS: float(load.errors),
    }
    figures |= {f"cpu_us.{role}": value for role, value in cost.cpu_us.items()}
    if cost.commands:
        figures |= {
            "redis_commands": sum(cost.commands.values()),
            "redis_scripts": cost.commands.get("evalsha", 0.0),
            "redis_in_bytes": cost.redis_in_bytes,
            "redis_out_bytes": cost.redis_out_bytes,
        }
    return figures
