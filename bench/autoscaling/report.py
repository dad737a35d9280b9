"""The results as tables of docs/autoscaling.md, and as time series of a day for the picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.autoscaling.cluster import DayHistory, Scenario
from bench.autoscaling.experiments import TARGETS
from bench.autoscaling.figures import p99_ms
from bench.autoscaling.jobs import WORKER_COUNTS
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.scenarios import STARTS_S
from bench.autoscaling.traffic import STEP_S
from bench.autoscaling.worker_profile import LOADS
from bench.tables import format_median, format_spread, markdown, number

SPAN_S = 300.0
MIN_SHARE = 0.0001
Row = Mapping[str, Any]
Rows = Sequence[Row]
Cells = Sequence[Callable[[Row], str]]


def day_series(history: DayHistory, scenario: Scenario, about: str, bounds: Mapping[str, int]) -> dict[str, Any]:
    """Returns the time series of a day in spans of SPAN_S, for JSON; of ready pods, the minimum and the maximum.

    `bounds` has the maximum number of replicas of each role.
    """
    steps = round(SPAN_S / STEP_S)

    def spans(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(values, dtype=float).reshape(-1, steps)

    arrived, workers, gateways = spans(history.arrived), spans(history.ready_workers), spans(history.ready_gateways)
    series = {
        "at_s": np.arange(len(arrived)) * SPAN_S,
        "offered_per_s": arrived.mean(axis=1) / STEP_S,
        "capacity_per_s": workers.min(axis=1) * scenario.worker_per_s,
        "workers": workers.min(axis=1),
        "workers_most": workers.max(axis=1),
        "gateways": gateways.min(axis=1),
        "gateways_most": gateways.max(axis=1),
        "p99_ms": p99_ms(history, scenario, SPAN_S),
    }
    rounded = {name: [float(f"{value:.5g}") for value in values] for name, values in series.items()}
    return {"about": about, "bounds": dict(bounds)} | rounded


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns all tables, by the names of their blocks in the document."""
    rows: Mapping[str, Rows] = record["tables"]
    return {
        "autoscaling-starts": startup_table(record["starts"]),
        "autoscaling-held": occupancy_table(record["held"]),
        "autoscaling-day": day_table(rows["day"]),
        "autoscaling-target": target_table(rows["target"], record["chosen"]),
        "autoscaling-many": large_requests_table(rows["many"], record["chosen"]),
        "autoscaling-jobs": jobs_table(record["jobs"]),
        "autoscaling-behavior": behavior_table(rows["behavior"]),
        "autoscaling-outage": outage_table(rows["outage"]),
        "autoscaling-gateways": gateways_table(rows["gateways"], record["chosen"]["gateways"]),
    }


def startup_table(measured: Mapping[str, Any]) -> str:
    """Returns the startup times of processes, and the machine."""
    lines = [
        [role, str(len(runs)), *(number(each) for each in (statistics.median(runs), min(runs), max(runs)))]
        for role, runs in measured["seconds"].items()
    ]
    table = markdown(["process", "starts", "median, s", "min, s", "max, s"], lines)
    facts = measured["machine"]
    return f"{table}\n\nOn: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}."


def occupancy_table(by_device: Mapping[str, Sequence[float]]) -> str:
    """Returns the entries that a worker holds at each load."""
    lines = [[device, *(number(each) for each in values)] for device, values in by_device.items()]
    return markdown(["entries held by a worker at", *(f"{load:.0%}" for load in LOADS)], lines)


def day_table(rows: Rows) -> str:
    """Returns the figures of each device's day with the settings of the manifests."""
    heads = ["workers on", "slow", "p50 ms", "p99 ms", "refused", "worker-hours", "max", "gateway-hours", "max"]
    names = {"p50_ms": number, "p99_ms": number, "refused": share, "worker_hours": number, "max_workers": whole}
    names |= {"gateway_hours": number, "max_gateways": whole, "requests": whole}
    return markdown(
        [*heads, "requests"],
        [
            [
                row["of"]["device"],
                format_spread(row, "slow", share),
                *(format_median(row, name, form) for name, form in names.items()),
            ]
            for row in rows
        ],
    )


def target_table(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns slow requests, p99 and cost by target, for each startup time of a worker."""
    names = [f"{start:g} s: {name}" for start in STARTS_S for name in ("slow", "p99 ms", "hours")]
    lines = _by_target(rows, chosen, [f", {start:g} s" for start in STARTS_S], _FIGURES)
    return markdown(["device", "target", *names], list(lines))


def large_requests_table(rows: Rows, chosen: Mapping[str, float]) -> str:
    """Returns slow requests, p99, cost and refusals by target, for requests of many inputs."""
    heads = ["device", "target", "slow", "p99 ms", "hours", "refused", "max workers"]
    cells: Cells = [
        *_FIGURES,
        lambda row: format_median(row, "refused", share),
        lambda row: format_median(row, "max_workers", whole),
    ]
    return markdown(heads, list(_by_target(rows, chosen, [""], cells)))


def jobs_table(rows: Rows) -> str:
    """Returns the entries of a job in the bulk lane, and the workers that these ask for."""
    heads = ["device", "texts", "bulk target", *(f"with {workers}" for workers in WORKER_COUNTS)]
    lines = []
    for row in rows:
        cells = [f"{entries:,} → {workers}" for entries, workers in zip(row["entries"], row["workers"], strict=True)]
        line = [row["device"], row["texts"], f"{row['target']:,g}", *cells]
        lines.append(_bold(line) if row["chosen"] else line)
    return markdown(heads, lines, left=2)


def behavior_table(rows: Rows) -> str:
    """Returns the figures of each behavior."""
    heads = ["device", "behavior", "slow", "p99 ms", "hours", "refused", "changes"]
    lines = [
        [
            row["of"]["device"],
            row["of"]["label"],
            *(cell(row) for cell in _FIGURES),
            format_median(row, "refused", share),
            format_median(row, "changes", whole),
        ]
        for row in rows
    ]
    return markdown(heads, lines, left=2)


def outage_table(rows: Rows) -> str:
    """Returns the figures of the hour after an outage of Redis, by KEDA's fallback."""
    heads = ["outage", "fallback", "min workers", "slow in the hour after", "p99 ms in the hour after"]
    lines = [
        [
            *row["of"]["label"].split(", ", 1),
            format_median(row, "min_ready", whole),
            format_median(row, "slow_after", share),
            format_median(row, "p99_after_ms"),
        ]
        for row in rows
    ]
    return markdown(heads, lines, left=2)


def gateways_table(rows: Rows, chosen: float) -> str:
    """Returns the figures of each CPU target of the gateways."""
    heads = ["target", "slow", "p99 ms", "expired", "gateway-hours", "max"]
    lines = []
    for row in rows:
        line = [
            row["of"]["label"],
            format_spread(row, "slow", share),
            format_median(row, "p99_ms"),
            format_median(row, "expired", share),
            format_median(row, "gateway_hours"),
            format_median(row, "max_gateways", whole),
        ]
        lines.append(_bold(line) if line[0] == f"{chosen:.0%}" else line)
    return markdown(heads, lines)


def thresholds(scaled: ScaledObject) -> str:
    """Describes the target of a ScaledObject in one line."""
    return f"a target of {scaled.target:g} entries for each"


def whole(value: float) -> str:
    """Formats a number without decimals."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """Formats a share of all requests as a percentage; a nonzero one below MIN_SHARE as "< 0.01%"."""
    return f"< {MIN_SHARE:.2%}" if 0 < value < MIN_SHARE else f"{value:.2%}"


_FIGURES: Cells = (
    lambda row: format_median(row, "slow", share),
    lambda row: format_median(row, "p99_ms"),
    lambda row: format_median(row, "worker_hours"),
)


def _by_target(rows: Rows, chosen: Mapping[str, float], suffixes: Sequence[str], cells: Cells) -> Iterator[list[str]]:
    """Yields a line for each device and target; the target of the manifests is in bold."""
    by_name = {(row["of"]["device"], row["of"]["label"]): row for row in rows}
    for device in dict.fromkeys(row["of"]["device"] for row in rows):
        for each in TARGETS:
            target_rows = [by_name[device, f"{each}{suffix}"] for suffix in suffixes]
            line = [device, str(each), *(cell(row) for row in target_rows for cell in cells)]
            yield _bold(line) if chosen[device] == each else line


def _bold(line: Sequence[str]) -> list[str]:
    return [f"**{cell}**" for cell in line]
