"""The plots of `make bench` in the documents. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.tables import ROLES, Rows, is_plain_many, median, number
from redbatch.bench.plot_style import (
    BLACK,
    BLUE,
    GREEN,
    OLIVE,
    RED,
    SMALL,
    YELLOW,
    new_figure,
    plain_numbers,
    save,
    spread,
    style,
)

WIDTH_INCHES = 10.0
HEIGHT_INCHES = 4.2
COLORS = {"gateway": BLUE, "worker": GREEN, "engine": OLIVE, "redis": RED}
PERCENTILES = {"p50_ms": BLUE, "p95_ms": YELLOW, "p99_ms": RED}
GROUP_WIDTH = 0.8
Row = Mapping[str, Any]


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Draws the pictures of each part that was measured."""
    tables: dict[str, Rows] = {}
    for part in results["parts"].values():
        tables |= part["tables"]
    pictures: dict[str, tuple[str, Callable[[Mapping[str, Rows]], Figure]]] = {
        "null-model.png": ("null", null_model),
        "cpu.png": ("null", cpu),
        "real.png": ("real", real_model),
    }
    for name, (needed, plot) in pictures.items():
        if needed in tables:
            save(plot(tables), folder / name)


def null_model(tables: Mapping[str, Rows]) -> Figure:
    """Rate and latency of the null model."""
    rows = tables["null"]
    figure = new_figure(WIDTH_INCHES, HEIGHT_INCHES)
    rates, latencies = figure.subplots(1, 2)
    names = [_shape_label(row) for row in rows]
    _bars(rates, names, rows, "requests_per_s")
    rates.set(title="Throughput, null model", ylabel="requests/s")
    _latencies(latencies, names, rows)
    latencies.set(title="Latency, null model", ylabel="ms")
    return figure


def cpu(tables: Mapping[str, Rows]) -> Figure:
    """CPU per request by process. A single client forms no batches: its bar would dwarf the others."""
    many = (row for row in tables.get("redis", ()) if is_plain_many(row["of"]))
    rows = [*(row for row in tables["null"] if row["of"]["clients"] > 1), *many]
    figure = new_figure(WIDTH_INCHES, HEIGHT_INCHES)
    axes = figure.subplots()
    names = [_shape_label(row) for row in rows]
    bottoms = [0.0] * len(rows)
    for role in ROLES:
        heights = [median(row, f"cpu_us.{role}") for row in rows]
        drawn = axes.bar(names, heights, bottom=bottoms, color=COLORS[role], label=role, width=0.6)
        axes.bar_label(drawn, fmt="{:.0f}", label_type="center", color="white", fontsize=SMALL)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for at, total in enumerate(bottoms):
        axes.annotate(f"{total:.0f}", (at, total), ha="center", va="bottom", xytext=(0, 2), textcoords="offset points")
    axes.set(title="CPU of one request by process, null model", ylabel="µs")
    style(axes)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def real_model(tables: Mapping[str, Rows]) -> Figure:
    """Rate of MiniLM as a share of the limit, and latency, for each mix of texts."""
    mixes = list(dict.fromkeys(row["of"]["mix"] for row in tables["real"]))
    figure = new_figure(WIDTH_INCHES, HEIGHT_INCHES * len(mixes))
    grid = figure.subplots(len(mixes), 2, squeeze=False)
    for (shares, latencies), mix in zip(grid, mixes, strict=True):
        rows = [row for row in tables["real"] if row["of"]["mix"] == mix]
        large = [row for row in tables["one-request"] if row["of"]["mix"] == mix]
        names = [_client_label(row) for row in rows]
        rates = [median(row, "requests_per_s") for row in rows] + [median(row, "texts_per_s") for row in large]
        _bars(
            shares,
            [*names, *["1,000 in one"] * len(large)],
            [*rows, *large],
            "share_of_limit",
            [f"{rate:,.0f}/s" for rate in rates],
        )
        (best,) = (row for row in tables["best"] if row["of"]["mix"] == mix)
        _limits(shares, *(median(best, name) / median(best, "texts_per_s") for name in FASTER))
        shares.set(title=f"Throughput, MiniLM, {mix} texts", ylabel="× the limit")
        _latencies(latencies, names, rows)
        latencies.set(title=f"Latency, MiniLM, {mix} texts", ylabel="ms")
    return figure


FASTER = ("tuned_texts_per_s", "side_by_side_texts_per_s")


def _limits(axes: Axes, tuned: float, side_by_side: float) -> None:
    """Draws lines at the offline rates: one batch at a time, the same tuned, and one batch on each core."""
    lines = (
        (1.0, "the limit: one batch at a time", "--"),
        (tuned, "the same, tuned", "-."),
        (side_by_side, "side by side", ":"),
    )
    for share, name, line in lines:
        axes.axhline(share, color=BLACK, linestyle=line, linewidth=1, label=name)
    axes.set_ylim(0, 1.25 * max(1.0, side_by_side))
    axes.legend(loc="upper left", fontsize="small")


def _bars(
    axes: Axes, names: Sequence[str], rows: Sequence[Row], name: str, labels: Sequence[str] | None = None
) -> None:
    """Draws bars of the medians, with the smallest and the largest run. Each bar shows its median, or its label."""
    figures = [row["figures"][name] for row in rows]
    heights = [each["median"] for each in figures]
    inside = labels or [number(height) for height in heights]
    drawn = axes.bar(names, heights, color=BLUE, width=0.6)
    axes.bar_label(drawn, inside, label_type="center", color="white")
    if any(len(each["runs"]) > 1 for each in figures):
        axes.errorbar(names, heights, yerr=spread(figures), fmt="none", ecolor=BLACK, capsize=4)
    style(axes)


def _latencies(axes: Axes, names: Sequence[str], rows: Sequence[Row]) -> None:
    width = GROUP_WIDTH / len(PERCENTILES)
    for index, (name, color) in enumerate(PERCENTILES.items()):
        places = [at + (index - 1) * width for at in range(len(rows))]
        heights = [median(row, name) for row in rows]
        drawn = axes.bar(places, heights, width, color=color, label=name.removesuffix("_ms"))
        axes.bar_label(drawn, [number(height) for height in heights], fontsize=SMALL)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), names)
    plain_numbers(axes.yaxis)
    axes.legend()
    style(axes)


def _client_label(row: Row) -> str:
    clients = row["of"]["clients"]
    return f"{clients:,} client{'' if clients == 1 else 's'}"


def _shape_label(row: Row) -> str:
    gateways = row["of"]["gateways"]
    return _client_label(row) + (f",\n{gateways} gateways" if gateways > 1 else "")
