"""Steps of `make bench`: their extent, their context, and the figures that all served rows have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Row
from bench.measurement import Measurement
from bench.rounds import Round

MANY_CLIENTS = 5_000
MANY_LEAD_S = 2.5
ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class Extent:
    """The amount of measurement: windows in seconds, texts of the limit, requests of 1,000 texts by mix.

    With `whole_grid`, the cost of Redis is measurement in every shape, otherwise in one.
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
class StepContext:
    """Context of a step: extent, folder for files, round, and a callback that shows the current measurement."""

    extent: Extent
    folder: Path
    round: Round
    show: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A step, repeated in each round. `seconds` is its estimated duration."""

    part: str
    name: str
    seconds: float
    run: Callable[[StepContext], Sequence[Row]]


def figures_of(measurement: Measurement) -> dict[str, float]:
    """Returns the figures of a measurement that each served row has."""
    load, cost = measurement.load, measurement.cost
    figures = {
        "requests_per_s": measurement.requests_per_s,
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
