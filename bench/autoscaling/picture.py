"""A day of each device as a picture. It imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from bench.autoscaling.figures import SLOW_S
from bench.autoscaling.traffic import HOUR_S, Crowd

DPI = 120
SIZE_INCHES = (12.5, 9.0)
OFFERED, WORKERS, GATEWAYS, LATE, MARK = "#222222", "#228833", "#997700", "#cc3311", "#777777"
CROWD = "#ccbb44"
TICKS_H = range(0, 25, 4)
MIN_MS, MAX_MS = 10, 20_000
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
Day = Mapping[str, Any]


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws what comes and what could be done, pods, and latency over a day, a column for each device."""
    days = found["days"]
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    rows = figure.subplots(3, len(days), sharex=True, squeeze=False, height_ratios=(3, 3, 2))
    for column, (device, day) in enumerate(days.items()):
        hours = [at_s / HOUR_S for at_s in day["at_s"]]
        for axes, panel in zip(rows[:, column], (_load, _pods, _latency), strict=True):
            _crowd(axes)
            panel(axes, hours, day)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.3)
        rows[0][column].set_title(f"Workers on {device}s: {day['about']}", fontsize=10)
        rows[2][column].set(xlabel="hour of the day", xticks=TICKS_H, xlim=(0, 24))
    for row, label in zip(rows, ("requests a second", "pods that are ready", "p99 latency, ms (log)"), strict=True):
        row[0].set_ylabel(label)
    figure.suptitle("A simulated day, in spans of five minutes")
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _crowd(axes: Axes) -> None:
    crowd = Crowd()
    axes.axvspan(crowd.at_s / HOUR_S, (crowd.at_s + crowd.for_s) / HOUR_S, color=CROWD, alpha=0.35, linewidth=0)


def _load(axes: Axes, hours: Sequence[float], day: Day) -> None:
    label = "what the ready workers can do (least of each span)"
    axes.step(hours, day["capacity_per_s"], where="post", color=WORKERS, linewidth=1.2, label=label)
    axes.plot(hours, day["offered_per_s"], color=OFFERED, linewidth=1.0, label="requests that come (mean)")
    axes.yaxis.set_major_formatter(THOUSANDS)
    most = max(*day["capacity_per_s"], *day["offered_per_s"])
    axes.set_ylim(0, 1.35 * most)
    crowd = Crowd()
    told = f"a crowd comes\nwithin {crowd.rise_s:.0f} s"
    axes.text(crowd.at_s / HOUR_S - 0.3, 1.1 * most, told, fontsize=8, ha="right")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _pods(axes: Axes, hours: Sequence[float], day: Day) -> None:
    for name, colour in (("workers", WORKERS), ("gateways", GATEWAYS)):
        least, most = day[name], day[f"{name}_most"]
        axes.fill_between(hours, least, most, step="post", color=colour, alpha=0.35, linewidth=0)
        bound = day["bounds"][name]
        label = f"{name}, the fewest of each span (shaded: to the most); dotted: {bound}, their maximum"
        axes.step(hours, least, where="post", color=colour, linewidth=1.3, label=label)
        axes.axhline(bound, color=colour, linestyle=":", linewidth=1.2)
    axes.set_ylim(0, 1.35 * max(day["bounds"].values()))
    axes.yaxis.set_major_locator(MultipleLocator(2))
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _latency(axes: Axes, hours: Sequence[float], day: Day) -> None:
    axes.plot(hours, day["p99_ms"], color=LATE, linewidth=1.2, label="p99 of those who were answered")
    label = f"slow: over {SLOW_S:g} s"
    axes.axhline(1000 * SLOW_S, color=MARK, linestyle="--", linewidth=1.2, label=label)
    axes.set_yscale("log")
    axes.set_ylim(MIN_MS, MAX_MS)
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
