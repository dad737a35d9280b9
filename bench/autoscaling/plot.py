"""The plot of `make bench-autoscaling`: a day of each device. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from bench.autoscaling.figures import SLOW_S
from bench.autoscaling.traffic import HOUR_S, Crowd
from redbatch.bench.plot_style import (
    BLACK,
    GRAY,
    GREEN,
    OLIVE,
    RED,
    SMALL,
    TITLE,
    YELLOW,
    legend,
    new_figure,
    plain_numbers,
    save,
    style,
)

SIZE_INCHES = (12.5, 9.0)
OFFERED, WORKERS, GATEWAYS, LATENCY, THRESHOLD = BLACK, GREEN, OLIVE, RED, GRAY
CROWD = YELLOW
TICKS_H = range(0, 25, 4)
MIN_MS, MAX_MS = 10, 20_000
THOUSANDS = ",.0f"
Day = Mapping[str, Any]


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draws load and capacity, pods, and latency over a day, with a column for each device."""
    days = results["days"]
    figure = new_figure(*SIZE_INCHES)
    rows = figure.subplots(3, len(days), sharex=True, squeeze=False, height_ratios=(3, 3, 2))
    for column, (device, day) in enumerate(days.items()):
        hours = [at_s / HOUR_S for at_s in day["at_s"]]
        for axes, panel in zip(rows[:, column], (_load, _pods, _latency), strict=True):
            _crowd(axes)
            panel(axes, hours, day)
            style(axes)
        rows[0][column].set_title(f"Workers on {device}s: {day['about']}", fontsize=TITLE)
        rows[2][column].set(xlabel="hour of the day", xticks=TICKS_H, xlim=(0, 24))
    for row, label in zip(rows, ("requests/s", "ready pods", "p99 latency, ms (log)"), strict=True):
        row[0].set_ylabel(label)
    figure.suptitle("A simulated day in spans of five minutes")
    save(figure, path)


def _crowd(axes: Axes) -> None:
    crowd = Crowd()
    axes.axvspan(crowd.at_s / HOUR_S, (crowd.at_s + crowd.for_s) / HOUR_S, color=CROWD, alpha=0.35, linewidth=0)


def _load(axes: Axes, hours: Sequence[float], day: Day) -> None:
    label = "capacity of ready workers (minimum of each span)"
    axes.step(hours, day["capacity_per_s"], where="post", color=WORKERS, linewidth=1.2, label=label)
    axes.plot(hours, day["offered_per_s"], color=OFFERED, linewidth=1.0, label="offered requests (mean)")
    plain_numbers(axes.yaxis, spec=THOUSANDS)
    top = max(*day["capacity_per_s"], *day["offered_per_s"])
    axes.set_ylim(0, 1.35 * top)
    crowd = Crowd()
    note = f"sudden load,\nrising within {crowd.rise_s:.0f} s"
    axes.text(crowd.at_s / HOUR_S - 0.3, 1.1 * top, note, fontsize=SMALL, ha="right")
    legend(axes)


def _pods(axes: Axes, hours: Sequence[float], day: Day) -> None:
    for name, color in (("workers", WORKERS), ("gateways", GATEWAYS)):
        minimum, maximum = day[name], day[f"{name}_most"]
        axes.fill_between(hours, minimum, maximum, step="post", color=color, alpha=0.35, linewidth=0)
        bound = day["bounds"][name]
        label = f"{name}, minimum of each span (shaded: up to the maximum); dotted: limit of {bound}"
        axes.step(hours, minimum, where="post", color=color, linewidth=1.3, label=label)
        axes.axhline(bound, color=color, linestyle=":", linewidth=1.2)
    axes.set_ylim(0, 1.35 * max(day["bounds"].values()))
    axes.yaxis.set_major_locator(MultipleLocator(2))
    legend(axes)


def _latency(axes: Axes, hours: Sequence[float], day: Day) -> None:
    axes.plot(hours, day["p99_ms"], color=LATENCY, linewidth=1.2, label="p99 of answered requests")
    label = f"slow: over {SLOW_S:g} s"
    axes.axhline(1000 * SLOW_S, color=THRESHOLD, linestyle="--", linewidth=1.2, label=label)
    axes.set_yscale("log")
    axes.set_ylim(MIN_MS, MAX_MS)
    plain_numbers(axes.yaxis, spec=THOUSANDS)
    legend(axes)
