"""A day of each device as a picture. It imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

DPI = 120
SIZE_INCHES = (12.5, 9.0)
OFFERED, CAPACITY, WORKERS, GATEWAYS, LATE, REFUSED = "#222222", "#4477aa", "#228833", "#997700", "#cc3311", "#aa3377"
TICKS_H = range(0, 25, 4)
LEAST_REFUSED = 0.01


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws what came and what could be done, pods, latency and refusals over a day, a column for each device."""
    days = found["days"]
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    rows = figure.subplots(4, len(days), sharex=True, squeeze=False, height_ratios=(3, 2, 2, 1.4))
    for column, (device, day) in enumerate(days.items()):
        hours = [at_s / 3600 for at_s in day["at_s"]]
        _load(rows[0][column], hours, day)
        _pods(rows[1][column], hours, day)
        _latency(rows[2][column], hours, day)
        _refused(rows[3][column], hours, day)
        rows[0][column].set_title(f"{device} workers: {day['about']}", fontsize=10)
        rows[3][column].set(xlabel="hour of the day", xticks=TICKS_H, xlim=(0, 24))
    for row, label in zip(rows, ("requests/s", "pods", "p99, ms (log)", "refused, %"), strict=True):
        row[0].set_ylabel(label)
        for axes in row:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _load(axes: Axes, hours: Sequence[float], day: Mapping[str, Any]) -> None:
    axes.step(hours, day["capacity_per_s"], where="post", color=CAPACITY, linewidth=1.2, label="ready workers can do")
    axes.plot(hours, day["offered_per_s"], color=OFFERED, linewidth=1.0, label="come")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _pods(axes: Axes, hours: Sequence[float], day: Mapping[str, Any]) -> None:
    axes.step(hours, day["workers"], where="post", color=WORKERS, linewidth=1.3, label="workers")
    axes.step(hours, day["gateways"], where="post", color=GATEWAYS, linewidth=1.3, linestyle="--", label="gateways")
    axes.set_ylim(0, max(*day["workers"], *day["gateways"]) + 2.5)
    axes.yaxis.set_major_locator(MultipleLocator(2))
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def _latency(axes: Axes, hours: Sequence[float], day: Mapping[str, Any]) -> None:
    axes.plot(hours, day["p99_ms"], color=LATE, linewidth=1.2)
    axes.set_yscale("log")
    axes.set_ylim(10, 20_000)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _refused(axes: Axes, hours: Sequence[float], day: Mapping[str, Any]) -> None:
    shares = [100 * share for share in day["refused_share"]]
    axes.fill_between(hours, shares, step="post", color=REFUSED, linewidth=0)
    axes.set_ylim(0, max(LEAST_REFUSED, *shares) * 1.1)
