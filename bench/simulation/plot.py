"""The plots of `make bench-simulation`. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bench.simulation.comparison import CLOSED
from bench.simulation.short_long import Comparison
from redbatch.bench.plot_style import BLUE, GRAY, RED, TITLE, YELLOW, legend, new_figure, plain_numbers, save, style

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


ORDERS = {
    "in the order of arrival": ("by_arrival", "s", RED),
    "short ones first": ("short_first", "o", BLUE),
    "short ones alone": ("alone", "^", GRAY),
}
MS_TICKS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


def draw_orders(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draws for each device the latency of short texts by percentile, in each order, and the bound of their p99."""
    figure = new_figure(10.5, 4.2)
    panels = figure.subplots(1, len(comparisons), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, comparisons, strict=True):
        for label, (name, marker, color) in ORDERS.items():
            latencies: dict[float, float] = getattr(each, name)
            places = range(len(latencies))
            axes.plot(places, list(latencies.values()), marker=marker, color=color, label=label)
            axes.set_xticks(list(places), [f"p{percentile:g}" for percentile in latencies])
        axes.axhline(each.bound_ms, color="black", linestyle="--", linewidth=0.8, label="p99 alone, plus one batch")
        axes.set_yscale("log")
        axes.set_title(f"{each.device}: a full batch takes {each.batch_ms:.0f} ms", fontsize=TITLE)
        style(axes)
    plain_numbers(panels[0].yaxis, MS_TICKS)
    panels[0].set_ylabel("latency of short texts, ms", fontsize=9)
    legend(panels[-1])
    save(figure, path)
