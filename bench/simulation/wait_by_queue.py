"""How long a free engine waits for a fuller batch, by the number of inputs that wait already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.simulation.cluster import simulate
from bench.simulation.setup import MAX_SIZE, Device, Setup
from bench.simulation.traffic import closed_loop
from bench.tables import NONE, markdown, number
from gpuworker.policy.costs import Costs

BLOCK = "wait-by-queue"
DEVICE = Device(Costs(0.0297, 0.0003), 16_384, "one", packed=True)
"""`simulated:base_ms=30,item_ms=0.3`: the first input is part of the base."""

CLIENTS, THINK_S, RUN_S, WARMUP_S = (8, 24, 48, 96, 192), 0.005, 30.0, 5.0
"""Clients in a closed loop, one number after the other, so that queues of any length occur."""

FIXED_S = 0.05
PARTS = 4
"""The lengths of queues are counted in this number of ranges up to a full batch, and from a full batch on."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Mean wait (ms) of the batches before which `min_waiting` to `max_waiting` inputs waited; None without any."""

    min_waiting: int
    max_waiting: int | None
    auto_ms: float | None
    fixed_ms: float | None


def measure_waits(seed: int = 1) -> list[Wait]:
    """Returns the mean waits for each range of lengths of the queue, of the adaptive wait and of a fixed one."""
    auto, fixed = ([*_waits(wait_s, seed)] for wait_s in (None, FIXED_S))
    step = MAX_SIZE // PARTS
    ranges: list[tuple[int, int | None]] = [(max(1, part * step), (part + 1) * step - 1) for part in range(PARTS)]
    return [
        Wait(first, last, _mean_ms(auto, first, last), _mean_ms(fixed, first, last))
        for first, last in [*ranges, (MAX_SIZE, None)]
    ]


def _waits(wait_s: float | None, seed: int) -> Iterator[tuple[int, float]]:
    """Yields the number of waiting inputs and the wait (s) of each batch."""
    for clients in CLIENTS:
        outcome = simulate(Setup(DEVICE, wait_s=wait_s), closed_loop(clients, RUN_S, 0.0, THINK_S), seed)
        yield from (
            (each.num_waiting, each.began_s - each.free_s) for each in outcome.batches if each.free_s > WARMUP_S
        )


def _mean_ms(waits: Sequence[tuple[int, float]], first: int, last: int | None) -> float | None:
    selected = [wait_s for waiting, wait_s in waits if waiting >= first and (last is None or waiting <= last)]
    return fmean(selected) * 1000 if selected else None


def table(waits: Sequence[Wait]) -> str:
    """Returns the waits as Markdown."""
    rows = [
        [
            f"{each.min_waiting} or more" if each.max_waiting is None else f"{each.min_waiting} to {each.max_waiting}",
            *(NONE if ms is None else number(ms) for ms in (each.auto_ms, each.fixed_ms)),
        ]
        for each in waits
    ]
    return markdown(("inputs waiting", "auto: mean wait, ms", f"{FIXED_S * 1000:.0f} ms: mean wait, ms"), rows)
