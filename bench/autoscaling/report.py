"""The results as tables of docs/autoscaling.md, and as the course of a day for the picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.autoscaling.cluster import Course, Scene
from bench.autoscaling.figures import p99_ms
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.scenes import STARTS_S
from bench.autoscaling.station import LOADS
from bench.autoscaling.traffic import STEP_S
from bench.autoscaling.variants import TARGETS
from bench.tables import markdown, number

SPAN_S = 300.0
LEAST_SHARE = 0.0001
Row = Mapping[str, Any]
Rows = Sequence[Row]


def day_of(course: Course, scene: Scene, about: str) -> dict[str, Any]:
    """Returns a day in spans of SPAN_S, as JSON has it."""
    steps = round(SPAN_S / STEP_S)

    def spans(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(values, dtype=float).reshape(-1, steps)

    arrived, refused = spans(course.arrived).sum(axis=1), spans(course.refused).sum(axis=1)
    found = {
        "at_s": np.arange(len(arrived)) * SPAN_S,
        "offered_per_s": arrived / SPAN_S,
        "capacity_per_s": spans(course.ready).mean(axis=1) * scene.worker_per_s,
        "workers": spans(course.workers).max(axis=1),
        "gateways": spans(course.gateways).max(axis=1),
        "p99_ms": p99_ms(course, scene, SPAN_S),
        "refused_share": refused / arrived,
    }
    return {"about": about} | {name: [float(f"{value:.5g}") for value in values] for name, values in found.items()}


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Returns all tables, by the names of their places."""
    rows: Mapping[str, Rows] = found["tables"]
    return {
        "autoscaling-starts": starts(found["starts"]["seconds"]),
        "autoscaling-held": held(found["held"]),
        "autoscaling-day": _plain("workers on", rows["day"], lambda row: row["of"]["device"]),
        "autoscaling-target": target(rows["target"], found["chosen"]),
        "autoscaling-many": many(rows["many"], found["chosen"]),
        "autoscaling-behaviour": behaviour(rows["behaviour"]),
        "autoscaling-gateways": gateways(rows["gateways"]),
    }


def starts(measured: Mapping[str, Sequence[float]]) -> str:
    """Returns what processes took to be ready."""
    lines = [
        [role, str(len(runs)), *(number(each) for each in (statistics.median(runs), min(runs), max(runs)))]
        for role, runs in measured.items()
    ]
    return markdown(["process", "starts", "median, s", "least, s", "most, s"], lines)


def held(by_device: Mapping[str, Sequence[float]]) -> str:
    """Returns what a worker holds at each load."""
    lines = [[device, *(number(each) for each in values)] for device, values in by_device.items()]
    return markdown(["entries in a worker's hands at", *(f"{load:.0%}" for load in LOADS)], lines)


def target(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns slow requests, p99 and cost by target, for each time that a worker takes to start."""
    heads = [
        "device",
        "target",
        *(f"{start:g} s: {name}" for start in STARTS_S for name in ("slow", "p99 ms", "hours")),
    ]
    return markdown(heads, list(_by_target(rows, chosen, [f", {start:g} s" for start in STARTS_S])), left=1)


def many(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns the same for requests of many inputs."""
    heads = ["device", "target", "slow", "p99 ms", "hours", "refused", "most workers"]
    cells = [*_FIGURES, lambda row: _share(row, "refused"), lambda row: _whole(row, "most_workers")]
    return markdown(heads, list(_by_target(rows, chosen, [""], cells)))


def behaviour(rows: Rows) -> str:
    """Returns what other behaviours give."""
    heads = ["device", "behaviour", "slow", "p99 ms", "hours", "refused", "changes"]
    lines = [
        [
            row["of"]["device"],
            row["of"]["what"],
            *(cell(row) for cell in _FIGURES),
            _share(row, "refused"),
            _whole(row, "changes"),
        ]
        for row in rows
    ]
    return markdown(heads, lines, left=2)


def gateways(rows: Rows) -> str:
    """Returns what other targets of the gateways' CPU give."""
    return _plain("target", rows, lambda row: str(row["of"]["what"]))


def thresholds(scaled: ScaledObject) -> str:
    """Says in a line what was simulated, of a ScaledObject."""
    return f"{scaled.target:g} entries a worker, {scaled.least} to {scaled.most} of them"


def _plain(head: str, rows: Rows, name: Callable[[Row], str]) -> str:
    heads = [head, "slow", "p50 ms", "p99 ms", "refused", "worker-hours", "most", "gateway-hours", "most", "requests"]
    lines = [
        [
            name(row),
            _share(row, "slow"),
            number(_middle(row, "p50_ms")),
            number(_middle(row, "p99_ms")),
            _share(row, "refused"),
            number(_middle(row, "worker_hours")),
            _whole(row, "most_workers"),
            number(_middle(row, "gateway_hours")),
            _whole(row, "most_gateways"),
            _whole(row, "requests"),
        ]
        for row in rows
    ]
    return markdown(heads, lines)


_FIGURES: Sequence[Callable[[Row], str]] = (
    lambda row: _share(row, "slow"),
    lambda row: number(_middle(row, "p99_ms")),
    lambda row: number(_middle(row, "worker_hours")),
)


def _by_target(
    rows: Rows, chosen: Mapping[str, float], suffixes: Sequence[str], cells: Sequence[Callable[[Row], str]] = _FIGURES
) -> Iterator[list[str]]:
    """Yields a line for each device and target, that of the manifests in bold."""
    by_name = {(row["of"]["device"], row["of"]["what"]): row for row in rows}
    for device in dict.fromkeys(row["of"]["device"] for row in rows):
        for each in TARGETS:
            found = [by_name[device, f"{each}{suffix}"] for suffix in suffixes]
            line = [device, str(each), *(cell(row) for row in found for cell in cells)]
            yield [f"**{cell}**" for cell in line] if chosen[device] == each else line


def _middle(row: Row, name: str) -> float:
    return float(row["figures"][name]["median"])


def _whole(row: Row, name: str) -> str:
    return f"{_middle(row, name):,.0f}"


def _share(row: Row, name: str) -> str:
    """Returns a share of all requests as per cent; of next to none, that there are some."""
    share = _middle(row, name)
    return f"< {LEAST_SHARE:.2%}" if 0 < share < LEAST_SHARE else f"{share:.2%}"
