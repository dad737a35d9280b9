"""The plots of the documentation, from small results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import jobs_plot, plots
from bench.figures import Name, Row
from bench.peers import overload
from bench.tables import ROLES
from redbatch.bench.plot_style import new_figure, plain_numbers, save, spread

PNG = b"\x89PNG"


def row(of: dict[str, Name], **runs: tuple[float, ...]) -> dict[str, Any]:
    """A row of results with the runs of each figure."""
    figures = {
        name: {"median": sorted(each)[len(each) // 2], "min": min(each), "max": max(each), "runs": list(each)}
        for name, each in runs.items()
    }
    return {"of": of, "figures": figures}


def served(of: dict[str, Name]) -> dict[str, Any]:
    """A row of a server under a load."""
    costs = {f"cpu_us.{role}": (10.0 * (i + 1),) for i, role in enumerate(ROLES)}
    latencies = {"p50_ms": (1.0, 2.0, 4.0), "p95_ms": (20.0,), "p99_ms": (300.0,)}
    return row(of, requests_per_s=(90.0, 100.0, 120.0), share_of_limit=(0.9, 0.95), **latencies, **costs)


def test_each_measured_part_is_plotted(tmp_path: Path) -> None:
    """The null model gives two pictures and the real one a third; the same results give the same files."""
    best = row({"mix": "short"}, texts_per_s=(100.0,), tuned_texts_per_s=(110.0,), side_by_side_texts_per_s=(140.0,))
    large = row({"mix": "short"}, share_of_limit=(0.9,), texts_per_s=(95.0,))
    real = {"real": [served({"mix": "short", "clients": 64})], "one-request": [large], "best": [best]}
    null = [served({"clients": clients, "gateways": 1 + clients // 200}) for clients in (1, 64, 256)]
    plots.draw({"parts": {"null": {"tables": {"null": null}}}}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"null-model.png", "cpu.png"}
    before = (tmp_path / "cpu.png").read_bytes()
    plots.draw({"parts": {"null": {"tables": {"null": null}}, "real": {"tables": real}}}, tmp_path)
    assert (tmp_path / "real.png").read_bytes().startswith(PNG)
    assert (tmp_path / "cpu.png").read_bytes() == before


def test_the_latency_beside_a_job_is_plotted(tmp_path: Path) -> None:
    """A panel for the model has a line for each bound."""
    tables = [
        row({"model": "minilm", "rate": "30", "bound": bound}, job_texts_per_s=(50.0,)) for bound in ("2 ×", "none")
    ]
    second = {"p50_ms": 5.0, "p99_ms": 9.0}
    seconds = {
        jobs_plot.series_key(each["of"]): {"without_job": [second], "with_job": [second, second]} for each in tables
    }
    jobs_plot.draw({"tables": tables, "seconds": seconds}, 100, tmp_path / "jobs.png")
    assert (tmp_path / "jobs.png").read_bytes().startswith(PNG)


def test_an_overload_without_answers_is_plotted(tmp_path: Path) -> None:
    """A server without a good answer has no latency at this load."""
    figures = {"offered_per_s": 10.0, "in_time_per_s": 9.0, "p99_ms": 70.0}
    rows = [
        Row("overload", {"server": name}, figures | more)
        for name in overload.COLORS
        for more in ({}, {"offered_per_s": 900.0, "in_time_per_s": 0.0, "p99_ms": 0.0})
    ]
    overload.draw(rows, tmp_path / "overload.png")
    assert (tmp_path / "overload.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_same_figure_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    """The file does not contain the time."""
    paths = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for path in paths:
        figure = new_figure(2, 2)
        axes = figure.subplots()
        axes.plot([1, 10], [1, 100])
        axes.set_yscale("log")
        plain_numbers(axes.yaxis, (1, 50))
        save(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_error_bars_reach_from_the_smallest_to_the_largest_run() -> None:
    """The distances below and above the median."""
    assert spread([{"median": 2.0, "min": 1.5, "max": 4.0}]) == [[0.5], [2.0]]
