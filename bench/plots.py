"""The pictures of docs/performance.md. The one module of these that imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.tables import ROLES, Rows, is_plain_many, median, number

DPI = 130
WIDTH_INCHES = 10.0
HEIGHT_INCHES = 4.2
COLOURS = {"gateway": "#4477aa", "worker": "#228833", "engine": "#997700", "redis": "#cc3311"}
PERCENTILES = {"p50_ms": "#4477aa", "p95_ms": "#ccbb44", "p99_ms": "#cc3311"}
BAR, LIMIT = "#4477aa", "#222222"
GROUP_WIDTH = 0.8
Row = Mapping[str, Any]


def draw(found: Mapping[str, Any], folder: Path) -> None:
    """Draws a picture for each part that was measured."""
    tables: dict[str, Rows] = {}
    for part in found["parts"].values():
        tables |= part["tables"]
    pictures: dict[str, tuple[str, Callable[[Mapping[str, Rows]], Figure]]] = {
        "plumbing.png": ("plumbing", plumbing),
        "cpu.png": ("plumbing", cpu),
        "real.png": ("real", real),
    }
    for name, (needed, picture) in pictures.items():
        if needed in tables:
            # Without the version that is put into it otherwise, the same picture is the same file.
            picture(tables).savefig(folder / name, dpi=DPI, metadata={"Software": None})


def plumbing(tables: Mapping[str, Rows]) -> Figure:
    """Rate and latency of the null model."""
    rows = tables["plumbing"]
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    rates, latencies = figure.subplots(1, 2)
    names = [_shape(row) for row in rows]
    _bars(rates, names, rows, "requests_per_s")
    rates.set(title="Throughput, null model", ylabel="requests/s")
    _latencies(latencies, names, rows)
    latencies.set(title="Latency, null model", ylabel="ms")
    return figure


def cpu(tables: Mapping[str, Rows]) -> Figure:
    """CPU of a request by process. One client alone has no batches, and would dwarf the others."""
    many = (row for row in tables.get("redis", ()) if is_plain_many(row["of"]))
    rows = [*(row for row in tables["plumbing"] if row["of"]["clients"] > 1), *many]
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    axes = figure.subplots()
    names = [_shape(row) for row in rows]
    bottoms = [0.0] * len(rows)
    for role in ROLES:
        heights = [median(row, f"cpu_us.{role}") for row in rows]
        drawn = axes.bar(names, heights, bottom=bottoms, color=COLOURS[role], label=role, width=0.6)
        axes.bar_label(drawn, fmt="{:.0f}", label_type="center", color="white", fontsize=8)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for at, total in enumerate(bottoms):
        axes.annotate(f"{total:.0f}", (at, total), ha="center", va="bottom", xytext=(0, 2), textcoords="offset points")
    axes.set(title="CPU of one request by process, null model", ylabel="µs")
    _plain(axes)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def real(tables: Mapping[str, Rows]) -> Figure:
    """Rate against the limit, and latency, of MiniLM, for each mix of texts."""
    mixes = list(dict.fromkeys(row["of"]["mix"] for row in tables["real"]))
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES * len(mixes)), layout="constrained")
    grid = figure.subplots(len(mixes), 2, squeeze=False)
    for (shares, latencies), mix in zip(grid, mixes, strict=True):
        rows = [row for row in tables["real"] if row["of"]["mix"] == mix]
        large = [row for row in tables["one-request"] if row["of"]["mix"] == mix]
        names = [_clients(row) for row in rows]
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
    """Lines for the model alone, offline: one batch at a time, the same tuned, and one on each core."""
    lines = (
        (1.0, "the limit: one batch at a time", "--"),
        (tuned, "the same, tuned", "-."),
        (side_by_side, "side by side", ":"),
    )
    for share, name, style in lines:
        axes.axhline(share, color=LIMIT, linestyle=style, linewidth=1, label=name)
    axes.set_ylim(0, 1.25 * max(1.0, side_by_side))
    axes.legend(loc="upper left", fontsize="small")


def _bars(
    axes: Axes, names: Sequence[str], rows: Sequence[Row], figure: str, labels: Sequence[str] | None = None
) -> None:
    """Bars of the medians, with the smallest and the largest run. Inside stands the median, or the label."""
    found = [row["figures"][figure] for row in rows]
    heights = [each["median"] for each in found]
    inside = labels or [number(height) for height in heights]
    drawn = axes.bar(names, heights, color=BAR, width=0.6)
    axes.bar_label(drawn, inside, label_type="center", color="white")
    if any(len(each["runs"]) > 1 for each in found):
        spread = [[each["median"] - each["min"] for each in found], [each["max"] - each["median"] for each in found]]
        axes.errorbar(names, heights, yerr=spread, fmt="none", ecolor=LIMIT, capsize=4)
    _plain(axes)


def _latencies(axes: Axes, names: Sequence[str], rows: Sequence[Row]) -> None:
    width = GROUP_WIDTH / len(PERCENTILES)
    for turn, (name, colour) in enumerate(PERCENTILES.items()):
        places = [at + (turn - 1) * width for at in range(len(rows))]
        heights = [median(row, name) for row in rows]
        drawn = axes.bar(places, heights, width, color=colour, label=name.removesuffix("_ms"))
        axes.bar_label(drawn, [number(height) for height in heights], fontsize=8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), names)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.3)


def _clients(row: Row) -> str:
    clients = row["of"]["clients"]
    return f"{clients:,} client{'' if clients == 1 else 's'}"


def _shape(row: Row) -> str:
    gateways = row["of"]["gateways"]
    return _clients(row) + (f",\n{gateways} gateways" if gateways > 1 else "")
