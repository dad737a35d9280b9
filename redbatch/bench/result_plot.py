"""Plots of the result. Imports matplotlib, so the command imports this module only for `--plot`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from redbatch.bench.plot_style import new_figure, save
from redbatch.bench.run import RunResult
from redbatch.bench.statistics import BUCKETS_PER_DECADE, Summary

SIZE_INCHES = (9.0, 9.0)
BUCKET_WIDTH = 1 - 10 ** (-1 / BUCKETS_PER_DECADE)


def draw(result: RunResult, path: Path) -> None:
    """Plots throughput and latency over time, and the distribution of latencies. The path's suffix is the format.

    Raises:
        OSError: the file cannot be written.
        ValueError: the format is unknown, or nothing was measured.
    """
    summary = result.summary
    if summary is None:
        raise ValueError("nothing was measured")
    figure = new_figure(*SIZE_INCHES)
    settings = result.spec.settings
    load = (
        f"{settings.rate:g} requests/s, {settings.arrivals}" if settings.rate else f"{settings.max_connections} clients"
    )
    figure.suptitle(f"{result.spec.target.url}\n{load}")
    _draw_rates(figure, summary)
    _draw_latency(figure, summary)
    _draw_histogram(figure, summary)
    save(figure, path)


def _draw_rates(figure: Figure, summary: Summary) -> None:
    axes = figure.add_subplot(3, 1, 1)
    edges_s = _edges_s(summary)
    lengths_s = [end_s - start_s for start_s, end_s in pairwise(edges_s)]
    counts = {
        "due": [each.sent for each in summary.seconds],
        "good answers": [each.answered_ok for each in summary.seconds],
        "errors": [each.errors for each in summary.seconds],
    }
    for label, values in counts.items():
        if any(values):
            rates = [value / length_s for value, length_s in zip(values, lengths_s, strict=True)]
            axes.stairs(rates, edges_s, label=label, linestyle="--" if label == "due" else "-")
    axes.set(xlabel="s", ylabel="requests/s", xlim=(0, summary.window_s), ylim=(0, None))
    axes.legend()


def _draw_latency(figure: Figure, summary: Summary) -> None:
    axes = figure.add_subplot(3, 1, 2)
    at_s = [(start_s + end_s) / 2 for start_s, end_s in pairwise(_edges_s(summary))]
    for label, values_ms in (
        ("p99", [each.p99_ms for each in summary.seconds]),
        ("p95", [each.p95_ms for each in summary.seconds]),
        ("p50", [each.p50_ms for each in summary.seconds]),
    ):
        axes.plot(at_s, values_ms, marker="o", markersize=3, label=label)
    axes.set(xlabel="s", ylabel="latency, ms", xlim=(0, summary.window_s), ylim=(0, None))
    axes.legend()


def _draw_histogram(figure: Figure, summary: Summary) -> None:
    axes = figure.add_subplot(3, 1, 3)
    axes.set(xlabel="latency, ms", ylabel="good answers")
    if not summary.histogram:
        return
    for bound_ms, count in summary.histogram:
        axes.bar(bound_ms, count, width=-bound_ms * BUCKET_WIDTH, align="edge", color="tab:gray")
    for percent, colour in (50.0, "tab:green"), (95.0, "tab:orange"), (99.0, "tab:blue"):
        value_ms = summary.latency.percentiles_ms[percent]
        axes.axvline(value_ms, linestyle="--", linewidth=1, color=colour, label=f"p{percent:g}: {value_ms:.3g} ms")
    axes.set_xscale("log")
    for axis_part in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis_part(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axes.legend()


def _edges_s(summary: Summary) -> list[float]:
    """Returns the start of each second, and the end of the last one, which may be shorter."""
    return [*(float(each.second) for each in summary.seconds), summary.window_s]
