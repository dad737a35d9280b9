"""The plot of `make bench-sweep`: batch sizes and waits. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bench.sweep.grid import ADAPTIVE, DEFAULT, ORIGINAL, SIZES, Setting, ceiling
from bench.sweep.loads import AT_ONCE, BURSTS
from bench.sweep.report import RATE, Record, by_setting
from redbatch.bench.plot_style import BLUE, GRAY, RED, SMALL, TITLE, new_figure, plain_numbers, save, spread, style

SIZE_INCHES = (11.0, 5.0)
COLORS = {"0": "#222255", "5": BLUE, "10": "#44aa99", "20": "#ddaa33", "50": RED, ADAPTIVE: "#aa3377"}
TICKS_MS = (50, 60, 70, 80, 100, 120, 150, 200, 300)
CROWDED = 8
"""Settings with at least this size are so close to each other that they get a separate panel."""
PLACES = {ORIGINAL[0]: (-52, 22), ORIGINAL[1]: (-66, 34), ORIGINAL[2]: (16, 26), DEFAULT: (-50, -34)}
"""Offsets of the labels of known settings from their dots, in points."""
Figures = Mapping[str, Mapping[str, Any]]


def draw(record: Record, path: Path) -> None:
    """Draws p95 in bursts over the throughput of 500 requests at once: all settings, and a detail of crowded ones.

    Settings with preferred sizes are in the table only: they are no point of a line.
    """
    settings = {
        setting: _figures(loads)
        for setting, loads in by_setting(record).items()
        if len(loads) > 1 and not setting.preferred
    }
    close = {setting: figures for setting, figures in settings.items() if setting.size >= CROWDED}
    figure = new_figure(*SIZE_INCHES)
    wide, near = figure.subplots(1, 2, width_ratios=(1, 1.35))
    for axes, shown in ((wide, settings), (near, close)):
        _points(axes, shown)
        _axes(axes)
    _sizes(wide, {setting: each for setting, each in settings.items() if setting.size < CROWDED}, (-38, -4))
    _ceilings(wide)
    wide.set_title("All settings, and the maximum of each batch size by the formula", fontsize=TITLE)
    _names(near, close)
    _sizes(
        near,
        {setting: each for setting, each in close.items() if setting.wait == "0" and setting != DEFAULT},
        (-14, -13),
    )
    near.set_title(f"Detail: batch sizes from {CROWDED}", fontsize=TITLE)
    near.margins(x=0.19, y=0.17)
    near.text(0.01, 0.01, "better: down and to the right", transform=near.transAxes, fontsize=SMALL, color=GRAY)
    handles, labels = near.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)


def _figures(loads: Mapping[str, Mapping[str, Any]]) -> Figures:
    return {"rate": loads[AT_ONCE]["figures"][RATE], "p95": loads[BURSTS]["figures"]["p95_ms"]}


def _points(axes: Axes, settings: Mapping[Setting, Figures]) -> None:
    """Draws a line for each wait, from the smallest size to the largest, with the spread of the rounds."""
    for wait, color in COLORS.items():
        selected = sorted((setting for setting in settings if setting.wait == wait), key=lambda setting: setting.size)
        if not selected:
            continue
        rates, p95s = ([settings[setting][name] for setting in selected] for name in ("rate", "p95"))
        axes.errorbar(
            [each["median"] for each in rates],
            [each["median"] for each in p95s],
            xerr=spread(rates),
            yerr=spread(p95s),
            color=color,
            marker="o",
            markersize=5.5,
            linewidth=1.2,
            elinewidth=0.7,
            alpha=0.95,
            label="adaptive wait" if wait == ADAPTIVE else f"wait {wait} ms",
        )


def _axes(axes: Axes) -> None:
    axes.set_yscale("log")
    plain_numbers(axes.yaxis, TICKS_MS)
    axes.set(xlabel="requests/s, 500 at once", ylabel="p95 in bursts, ms")
    style(axes, "both")


def _sizes(axes: Axes, settings: Mapping[Setting, Figures], offset: tuple[float, float]) -> None:
    """Labels the batch sizes at the dots without a wait."""
    for setting in settings:
        axes.annotate(
            f"size {setting.size}",
            _place(settings[setting]),
            xytext=offset,
            textcoords="offset points",
            fontsize=8.5,
            color=COLORS[setting.wait],
        )


def _ceilings(axes: Axes) -> None:
    for size in SIZES:
        axes.axvline(ceiling(size), color=GRAY, linestyle=":", linewidth=1, zorder=0)
    axes.set_xlim(left=axes.get_xlim()[0] - 18, right=ceiling(SIZES[-1]) * 1.02)
    top = axes.get_xaxis_transform()
    for size in (1, 2, 4):
        text = f"ceiling of {size}: {ceiling(size):.0f}/s"
        axes.text(
            ceiling(size) - 1, 0.99, text, transform=top, rotation=90, ha="right", va="top", fontsize=SMALL, color=GRAY
        )
    text = f"of 8 to 64: {ceiling(8):.0f} to {ceiling(64):.0f}/s"
    axes.text(ceiling(8) - 1, 0.99, text, transform=top, rotation=90, ha="right", va="top", fontsize=SMALL, color=GRAY)


def _names(axes: Axes, settings: Mapping[Setting, Figures]) -> None:
    """Labels the settings of the original benchmark, and the default."""
    for setting, offset in PLACES.items():
        if setting not in settings:
            continue
        text = f"{setting.size}, {setting.wait} ms" + (" (default)" if setting == DEFAULT else "")
        axes.annotate(
            text,
            _place(settings[setting]),
            xytext=offset,
            textcoords="offset points",
            fontsize=9,
            fontweight="bold",
            color=COLORS[setting.wait],
            arrowprops={"arrowstyle": "-", "color": COLORS[setting.wait], "linewidth": 0.8, "shrinkB": 4},
        )


def _place(figures: Figures) -> tuple[float, float]:
    return figures["rate"]["median"], figures["p95"]["median"]
