"""The plot of `make bench-simulation`: the adaptive wait and fixed waits. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bench.simulation.comparison import CLOSED
from redbatch.bench.plot_style import BLUE, TITLE, YELLOW, new_figure, plain_numbers, save

SIZE_INCHES = (10.5, 5.2)
ADAPTIVE = "adaptive"
SHOWN = {ADAPTIVE: ("*", "black"), "0": ("o", BLUE), "5": ("s", YELLOW), "20": ("D", "#ee6677")}
"""Settings in the plot, with marker and color; the others would lie between or beyond these."""

LANE = 0.19
OPEN_TICKS = (1, 1.2, 1.5, 2, 3)
CLOSED_TICKS = (0.3, 0.5, 0.7, 1, 1.5)


def draw(scenes: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws for each device the ratio of each setting to the best fixed wait of each scenario."""
    devices = list(dict.fromkeys(scene["device"] for scene in scenes))
    figure = new_figure(*SIZE_INCHES)
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, devices, list(_latencies(scenes)), OPEN_TICKS)
    _panel(right, devices, list(_rates(scenes)), CLOSED_TICKS)
    left.set_title("open loops, 30 to 95 % of capacity: p95", fontsize=TITLE)
    right.set_title("closed loops, 8 to 256 clients: requests/s", fontsize=TITLE)
    left.set_xlabel("× that of the best fixed wait (further left is better)", fontsize=9)
    right.set_xlabel("× those of the best fixed wait (further right is better)", fontsize=9)
    left.set_yticks(range(len(devices)), devices)
    left.invert_yaxis()
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(SHOWN), frameon=False)
    save(figure, path)


def _latencies(scenes: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """Yields device, setting and p95 relative to the lowest of all fixed waits. Skips overload: meaningless there."""
    for scene in scenes:
        if scene["load"] != CLOSED and scene["level"] <= 1:
            best = min(each["p95_ms"] for each in scene["fixed"].values())
            yield from ((scene["device"], name, _figures(scene, name)["p95_ms"] / best) for name in SHOWN)


def _rates(scenes: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """Yields device, setting and throughput relative to the highest of all fixed waits."""
    for scene in scenes:
        if scene["load"] == CLOSED:
            best = max(each["per_s"] for each in scene["fixed"].values())
            yield from ((scene["device"], name, _figures(scene, name)["per_s"] / best) for name in SHOWN)


def _figures(scene: dict[str, Any], name: str) -> dict[str, float]:
    values: dict[str, float] = scene[ADAPTIVE] if name == ADAPTIVE else scene["fixed"][name]
    return values


def _panel(
    axes: Axes, devices: Sequence[str], points: Sequence[tuple[str, str, float]], ticks: Sequence[float]
) -> None:
    for lane, (name, (marker, color)) in enumerate(SHOWN.items()):
        selected = [(device, value) for device, setting, value in points if setting == name]
        axes.plot(
            [value for _, value in selected],
            [devices.index(device) + (lane - (len(SHOWN) - 1) / 2) * LANE for device, _ in selected],
            linestyle="",
            marker=marker,
            color=color,
            alpha=0.6,
            markeredgewidth=0,
            markersize=9 if name == ADAPTIVE else 5,
            label=name if name == ADAPTIVE else f"{name} ms",
        )
    axes.axvline(1, color="gray", linewidth=0.8, zorder=0)
    for between in range(1, len(devices)):
        axes.axhline(between - 0.5, color="lightgray", linewidth=0.6, zorder=0)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis, ticks)
    axes.tick_params(labelsize=9)
