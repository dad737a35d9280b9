"""The results as tables of docs/autoscaling.md, and as the course of a day for the picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.autoscaling.cluster import Course, Scene
from bench.autoscaling.experiments import TARGETS
from bench.autoscaling.figures import p99_ms
from bench.autoscaling.jobs import FLEETS
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.scenarios import STARTS_S
from bench.autoscaling.traffic import STEP_S
from bench.autoscaling.worker_profile import LOADS
from bench.tables import markdown, middle, number, spread

SPAN_S = 300.0
LEAST_SHARE = 0.0001
Row = Mapping[str, Any]
Rows = Sequence[Row]
Cells = Sequence[Callable[[Row], str]]


def day_of(course: Course, scene: Scene, about: str, bounds: Mapping[str, int]) -> dict[str, Any]:
    """Returns a day in spans of SPAN_S, as JSON has it: of pods that are ready, the fewest and the most.

    `bounds` are how many of each there may be.
    """
    steps = round(SPAN_S / STEP_S)

    def spans(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(values, dtype=float).reshape(-1, steps)

    arrived, workers, gateways = spans(course.arrived), spans(course.ready), spans(course.ready_gateways)
    found = {
        "at_s": np.arange(len(arrived)) * SPAN_S,
        "offered_per_s": arrived.mean(axis=1) / STEP_S,
        "capacity_per_s": workers.min(axis=1) * scene.worker_per_s,
        "workers": workers.min(axis=1),
        "workers_most": workers.max(axis=1),
        "gateways": gateways.min(axis=1),
        "gateways_most": gateways.max(axis=1),
        "p99_ms": p99_ms(course, scene, SPAN_S),
    }
    told = {name: [float(f"{value:.5g}") for value in values] for name, values in found.items()}
    return {"about": about, "bounds": dict(bounds)} | told


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Returns all tables, by the names of their places."""
    rows: Mapping[str, Rows] = found["tables"]
    return {
        "autoscaling-starts": starts(found["starts"]),
        "autoscaling-held": held(found["held"]),
        "autoscaling-day": day(rows["day"]),
        "autoscaling-target": target(rows["target"], found["chosen"]),
        "autoscaling-many": many(rows["many"], found["chosen"]),
        "autoscaling-jobs": jobs(found["jobs"]),
        "autoscaling-behaviour": behaviour(rows["behaviour"]),
        "autoscaling-outage": outage(rows["outage"]),
        "autoscaling-gateways": gateways(rows["gateways"], found["chosen"]["gateways"]),
    }


def starts(measured: Mapping[str, Any]) -> str:
    """Returns what processes took to be ready, and on which machine."""
    lines = [
        [role, str(len(runs)), *(number(each) for each in (statistics.median(runs), min(runs), max(runs)))]
        for role, runs in measured["seconds"].items()
    ]
    table = markdown(["process", "starts", "median, s", "least, s", "most, s"], lines)
    facts = measured["machine"]
    return f"{table}\n\nOn: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}."


def held(by_device: Mapping[str, Sequence[float]]) -> str:
    """Returns what a worker holds at each load."""
    lines = [[device, *(number(each) for each in values)] for device, values in by_device.items()]
    return markdown(["entries in a worker's hands at", *(f"{load:.0%}" for load in LOADS)], lines)


def day(rows: Rows) -> str:
    """Returns the day of each device with what is set."""
    heads = ["workers on", "slow", "p50 ms", "p99 ms", "refused", "worker-hours", "most", "gateway-hours", "most"]
    names = {"p50_ms": number, "p99_ms": number, "refused": share, "worker_hours": number, "most_workers": whole}
    names |= {"gateway_hours": number, "most_gateways": whole, "requests": whole}
    return markdown(
        [*heads, "requests"],
        [
            [
                row["of"]["device"],
                spread(row, "slow", share),
                *(middle(row, name, form) for name, form in names.items()),
            ]
            for row in rows
        ],
    )


def target(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns slow requests, p99 and cost by target, for each time that a worker takes to start."""
    names = [f"{start:g} s: {name}" for start in STARTS_S for name in ("slow", "p99 ms", "hours")]
    lines = _by_target(rows, chosen, [f", {start:g} s" for start in STARTS_S], _FIGURES)
    return markdown(["device", "target", *names], list(lines))


def many(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns the same for requests of many inputs."""
    heads = ["device", "target", "slow", "p99 ms", "hours", "refused", "most workers"]
    cells: Cells = [
        *_FIGURES,
        lambda row: middle(row, "refused", share),
        lambda row: middle(row, "most_workers", whole),
    ]
    return markdown(heads, list(_by_target(rows, chosen, [""], cells)))


def jobs(rows: Rows) -> str:
    """Returns how many entries a job has in the lane bulk, and how many workers these ask for."""
    heads = ["device", "texts", "target of bulk", *(f"with {fleet}" for fleet in FLEETS)]
    lines = []
    for row in rows:
        asked = [f"{entries:,} → {wanted}" for entries, wanted in zip(row["entries"], row["wanted"], strict=True)]
        line = [row["device"], row["texts"], f"{row['target']:,g}", *asked]
        lines.append(_bold(line) if row["chosen"] else line)
    return markdown(heads, lines, left=2)


def behaviour(rows: Rows) -> str:
    """Returns what other behaviours give."""
    heads = ["device", "behaviour", "slow", "p99 ms", "hours", "refused", "changes"]
    lines = [
        [
            row["of"]["device"],
            row["of"]["what"],
            *(cell(row) for cell in _FIGURES),
            middle(row, "refused", share),
            middle(row, "changes", whole),
        ]
        for row in rows
    ]
    return markdown(heads, lines, left=2)


def outage(rows: Rows) -> str:
    """Returns how a day goes on after Redis was away, by what KEDA falls back to."""
    heads = ["away for", "fallback", "fewest workers", "slow in the hour after", "p99 ms in it"]
    lines = [
        [
            *row["of"]["what"].split(", ", 1),
            middle(row, "least_ready", whole),
            middle(row, "slow_after", share),
            middle(row, "p99_after_ms"),
        ]
        for row in rows
    ]
    return markdown(heads, lines, left=2)


def gateways(rows: Rows, chosen: float) -> str:
    """Returns what other targets of the gateways' CPU give."""
    heads = ["target", "slow", "p99 ms", "expired", "gateway-hours", "most"]
    lines = []
    for row in rows:
        line = [
            row["of"]["what"],
            spread(row, "slow", share),
            middle(row, "p99_ms"),
            middle(row, "expired", share),
            middle(row, "gateway_hours"),
            middle(row, "most_gateways", whole),
        ]
        lines.append(_bold(line) if line[0] == f"{chosen:.0%}" else line)
    return markdown(heads, lines)


def thresholds(scaled: ScaledObject) -> str:
    """Says in a line what was simulated, of a ScaledObject."""
    return f"a target of {scaled.target:g} entries for each"


def whole(value: float) -> str:
    """Returns a number without decimals."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """Returns a share of all requests as per cent; of next to none, that there are some."""
    return f"< {LEAST_SHARE:.2%}" if 0 < value < LEAST_SHARE else f"{value:.2%}"


_FIGURES: Cells = (
    lambda row: middle(row, "slow", share),
    lambda row: middle(row, "p99_ms"),
    lambda row: middle(row, "worker_hours"),
)


def _by_target(rows: Rows, chosen: Mapping[str, float], suffixes: Sequence[str], cells: Cells) -> Iterator[list[str]]:
    """Yields a line for each device and target, that of the manifests in bold."""
    by_name = {(row["of"]["device"], row["of"]["what"]): row for row in rows}
    for device in dict.fromkeys(row["of"]["device"] for row in rows):
        for each in TARGETS:
            found = [by_name[device, f"{each}{suffix}"] for suffix in suffixes]
            line = [device, str(each), *(cell(row) for row in found for cell in cells)]
            yield _bold(line) if chosen[device] == each else line


def _bold(line: Sequence[str]) -> list[str]:
    return [f"**{cell}**" for cell in line]
