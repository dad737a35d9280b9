"""A day as a picture: load, workers and gateways, latency. The one module here that imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench.autoscaling.day import HOUR_S
from bench.autoscaling.fleet import Sample
from bench.autoscaling.gateways import Moment

DPI = 110
INCHES = (10.5, 8.0)
BLUE, RED, GREEN, GREY = "#4477aa", "#ee6677", "#228833", "#999999"
TICKS_H = range(0, 25, 3)


def draw(samples: Sequence[Sample], gateways: Sequence[Moment], per_worker: float, title: str, path: Path) -> None:
    """Draws a day of workers with what they can do (requests a second, each), and the gateways' same day."""
    figure = Figure(figsize=INCHES, layout="constrained")
    load, workers, latency, front = figure.subplots(4, 1, sharex=True, height_ratios=(2, 2, 2, 1.4))
    hours = [sample.at / HOUR_S for sample in samples]
    load.plot(hours, [sample.per_s for sample in samples], color=BLUE, label="requests/s")
    can = [sample.ready * per_worker for sample in samples]
    load.step(hours, can, color=GREY, where="post", label="what the ready workers can do")
    load.set_ylabel("requests/s")
    load.set_title(title, fontsize=10)
    workers.step(hours, [sample.workers for sample in samples], color=RED, where="post", label="asked for")
    workers.step(hours, [sample.ready for sample in samples], color=GREEN, where="post", label="ready")
    workers.set_ylabel("workers")
    latency.plot(hours, [sample.p99_s * 1000 for sample in samples], color=BLUE, label="p99 of each minute")
    latency.set_yscale("log")
    latency.set_ylabel("ms")
    at = [moment.at / HOUR_S for moment in gateways]
    front.step(at, [moment.gateways for moment in gateways], color=RED, where="post", label="gateways")
    front.plot(at, [moment.used for moment in gateways], color=BLUE, label="cores that each uses")
    front.set_xlabel("hour of the day")
    for axes in (load, workers, latency, front):
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize=8, frameon=False)
        axes.set_xlim(0, 24)
        axes.set_xticks(TICKS_H)
        if axes is not latency:
            axes.set_ylim(bottom=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version that is put into it otherwise, the same picture is the same file.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
