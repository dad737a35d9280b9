"""The plot of `make bench-jobs`: latency of requests without and with a job. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redbatch.bench.plot_style import BLUE, GRAY, RED, legend, new_figure, save

SIZE_INCHES = (11.0, 4.6)
COLORS = (BLUE, RED)
PERCENTILES = (("p50_ms", "--"), ("p99_ms", "-"))


def series_key(of: Mapping[str, Any]) -> str:
    """Returns the key of the series (latency per second of the last round) that belongs to a row."""
    return f"{title_of(of)} {of['bound']}"


def title_of(of: Mapping[str, Any]) -> str:
    """Returns the title of a panel."""
    return f"{of['model']}, {of['rate']} requests/s"


def draw(results: Mapping[str, Any], texts: int, path: Path) -> None:
    """Draws p50 and p99 of each second, first without and then with the job: a panel per model, a color per bound.

    The series are those of the last round. `texts` is the size of the job.
    """
    panels: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in results["tables"]:
        of = row["of"]
        panels.setdefault(title_of(of), []).append((of["bound"], row))
    figure = new_figure(*SIZE_INCHES)
    for axes, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for (bound, row), color in zip(rows, COLORS, strict=True):
            series = results["seconds"][series_key(row["of"])]
            without_job, with_job = series["without_job"], series["with_job"]
            axes.axvline(len(without_job) - 0.5, color=GRAY, linestyle=":")
            rate = row["figures"]["job_texts_per_s"]["median"]
            label = f"bound {bound}: {rate:,.0f} texts/s of the job"
            for name, style in PERCENTILES:
                values = [each[name] for each in (*without_job, *with_job)]
                shown = label if name == "p99_ms" else None
                axes.plot(range(len(values)), values, style, color=color, linewidth=1.3, label=shown)
        axes.set(title=title, xlabel=f"s: without a job, then with a job of {texts:,} texts", ylabel="ms")
        axes.set_ylim(0, None)
        legend(axes)
    figure.suptitle("Latency of single requests, p99 (solid) and p50 (dashed) of each second", fontsize=11)
    save(figure, path)
