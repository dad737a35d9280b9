"""What a job costs those who ask beside it, as a picture. It imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

DPI = 130
SIZE_INCHES = (11.0, 4.6)
COLOURS = ("#4477aa", "#cc3311")
PERCENTILES = (("p50_ms", "--"), ("p99_ms", "-"))


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws p50 and p99 of each second, alone and then beside the job: a panel for each model, a colour for each bound.

    It is the course of the last round.
    """
    panels: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in found["tables"]:
        of = row["of"]
        panels.setdefault(f"{of['model']}, {of['rate']} requests/s", []).append((of["bound"], row))
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for (bound, row), colour in zip(rows, COLOURS, strict=True):
            course = found["seconds"][f"{title} {bound}"]
            alone, beside = course["alone"], course["beside"]
            rate = row["figures"]["job_texts_per_s"]["median"]
            label = f"bound {bound}: the job gets {rate:,.0f} texts/s"
            for name, style in PERCENTILES:
                values = [each[name] for each in (*alone, *beside)]
                shown = label if name == "p99_ms" else None
                axes.plot(range(len(values)), values, style, color=colour, linewidth=1.3, label=shown)
        axes.axvline(_seconds(rows, found, title) - 0.5, color="#999999", linestyle=":")
        axes.set(title=title, xlabel="s: alone, then beside a job of 100,000 texts", ylabel="ms")
        axes.set_ylim(0, None)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle("Latency of single requests, p99 (solid) and p50 (dashed) of each second", fontsize=11)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _seconds(rows: Sequence[tuple[str, Any]], found: Mapping[str, Any], title: str) -> int:
    return len(found["seconds"][f"{title} {rows[0][0]}"]["alone"])
