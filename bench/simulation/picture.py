"""The comparison as a picture. The one module here that imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.simulation.comparison import CLOSED

DPI = 110
PANEL_INCHES = (3.2, 2.5)
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677")
FIXED = "fixed waits, 0 to 50 ms"
ADAPTIVE = "adaptive"


def draw(scenes: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws throughput against p95 for each device and load: fixed waits as points, the adaptive one as a star."""
    devices, loads = (list(dict.fromkeys(scene[key] for scene in scenes)) for key in ("device", "load"))
    size = PANEL_INCHES[0] * len(loads), PANEL_INCHES[1] * len(devices) + 0.6
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(devices), len(loads), squeeze=False)
    for line, device in enumerate(devices):
        for column, load in enumerate(loads):
            mine = [scene for scene in scenes if (scene["device"], scene["load"]) == (device, load)]
            _panel(panels[line][column], mine)
            panels[line][column].set_title(f"{device}, {load}", fontsize=9)
    for line_of in panels:
        line_of[0].set_ylabel("p95, ms", fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("requests/s", fontsize=8)
    handles = [
        Line2D([], [], color="gray", marker="o", markersize=4, linewidth=0.6, label=FIXED),
        Line2D([], [], color="gray", marker="*", markersize=11, linestyle="", label=ADAPTIVE),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version that is put into it otherwise, the same picture is the same file.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _panel(axes: Axes, scenes: Sequence[dict[str, Any]]) -> None:
    for scene, colour in zip(scenes, COLOURS, strict=False):
        fixed = list(scene["fixed"].values())
        axes.plot(
            [each["per_s"] for each in fixed],
            [each["p95_ms"] for each in fixed],
            color=colour,
            marker="o",
            markersize=3,
            linewidth=0.6,
        )
        mine = scene["adaptive"]
        label = f"{scene['level']:g} clients" if scene["load"] == CLOSED else f"{scene['level']:.0%}"
        axes.plot(
            mine["per_s"],
            mine["p95_ms"],
            color=colour,
            marker="*",
            markersize=11,
            markeredgecolor="black",
            markeredgewidth=0.5,
            linestyle="",
            label=label,
        )
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=7)
    if scenes:
        axes.legend(fontsize=6, frameon=False)
