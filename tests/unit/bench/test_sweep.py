"""The sweep of batch sizes and waits: its ceilings, its table, its picture."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import document
from bench.sweep import plot, report
from bench.sweep.__main__ import BLOCK, block
from bench.sweep.grid import DEFAULT, MODEL, ORIGINAL, PREFERRED, Setting, batch_ms, ceiling, grid
from bench.sweep.loads import AT_ONCE, BURSTS, Extent
from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.model_spec import parse_model
from gpuworker.settings import WorkerSettings

MACHINE: dict[str, str | int | bool] = {"cpu": "a processor", "cores": 2}
METADATA = {"started": "2026-11-21 10:05", "commit": "abc1234"}


def figures(rate: float, p95_ms: float = 50.0, errors: float = 0.0) -> Mapping[str, float]:
    """Returns the figures of a load."""
    return {"requests_per_s": rate, "p50_ms": 20.0, "p95_ms": p95_ms, "p99_ms": 60.0, "max_ms": 70.0, "errors": errors}


def sample_sweep(rounds: int = 3) -> report.Record:
    """Returns a sweep in which each setting reaches nine tenths of its ceiling."""
    rows = [
        report.row(setting, load, figures(0.9 * ceiling(setting.size) - number, 50.0 + number))
        for number in range(rounds)
        for setting in grid()
        for load in (AT_ONCE, BURSTS)
    ]
    return report.as_json(rows, MACHINE, METADATA)


def test_the_ceilings_are_those_of_the_formula() -> None:
    """The ceilings match a calculation by hand: 8 inputs in 26 ms, 16 in 50 ms, 32 in 98 ms."""
    assert [round(ceiling(setting.size), 1) for setting in ORIGINAL] == [307.7, 320.0, 326.5]
    assert (batch_ms(1), ceiling(1)) == (5.0, 200.0)


def test_the_ceiling_holds_for_one_batch_at_a_time() -> None:
    """The simulated model has one runner: with several the ceiling would be wrong."""
    model = parse_model(MODEL)
    assert SimulatedBackend(model).runners == 1
    assert (model.base_ms, model.item_ms) == (5.0, 3.0)


def test_the_grid_has_the_known_settings() -> None:
    """The grid has the three original pairs and the default, and each setting once."""
    settings = grid()
    assert {*ORIGINAL, DEFAULT} <= set(settings)
    assert len(set(settings)) == len(settings)


@given(st.sampled_from(grid()), st.floats(0.1, 2))
def test_more_than_the_ceiling_makes_a_sweep_invalid(setting: Setting, share: float) -> None:
    """A rate above the ceiling is a problem under either load, by any margin."""
    rate = ceiling(setting.size) * share
    for load in (AT_ONCE, BURSTS):
        actual = report.problems([report.row(setting, load, figures(rate))])
        assert bool(actual) == (rate > ceiling(setting.size))
    assert not report.problems([report.row(setting, AT_ONCE, figures(ceiling(setting.size)))])


def test_a_failed_request_makes_a_sweep_invalid() -> None:
    """The problem names the number of failed requests, the load and the setting."""
    (text,) = report.problems([report.row(Setting(8, "5"), AT_ONCE, figures(100, errors=3))])
    assert text == "at once (8, 5 ms): 3 requests failed"


def test_rounds_can_be_added_to_earlier_ones() -> None:
    """Rows that are read and written again are the same, and their number of rounds is known."""
    actual = sample_sweep()
    rows = list(report.rows_of(actual))
    assert report.as_json(rows, MACHINE, METADATA)["rows"] == actual["rows"]
    assert report.num_rounds(rows) == 3
    assert report.num_rounds([]) == 0


def test_the_table_begins_with_the_known_settings_in_bold() -> None:
    """The rows have the ceiling of their size, the share of it, medians and spread."""
    lines = report.table(sample_sweep()).splitlines()[2:]
    assert [line.count("**") > 0 for line in lines] == [True] * 4 + [False] * (len(grid()) - 4)
    assert lines[0].startswith("| **8** | **5 ms** | 308 | 276 (275 to 277) |")
    assert "51.0 (50.0 to 52.0)" in lines[0]
    assert "| 0.90 |" in lines[0]


def test_the_documents_have_a_block_for_the_sweep(tmp_path: Path) -> None:
    """The block names the machine and the rounds."""
    pages = [Path(shutil.copy(page, tmp_path)) for page in document.PAGES]
    document.write_blocks({BLOCK: block(sample_sweep())}, pages)
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert "a processor, 2 cores" in text
    assert "3 rounds:" in text


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_picture_is_drawn(rounds: int, tmp_path: Path) -> None:
    """The same figures give the same file."""
    first, second = tmp_path / "1.png", tmp_path / "2.png"
    plot.draw(sample_sweep(rounds), first)
    plot.draw(sample_sweep(rounds), second)
    assert first.read_bytes().startswith(b"\x89PNG")
    assert first.read_bytes() == second.read_bytes()


def test_the_bursts_differ_by_round_only() -> None:
    """The loads of a round are fixed, another round has other bursts, and 500 requests at once have 500 connections."""
    extent = Extent()
    assert extent.loads(0) == extent.loads(0)
    assert extent.loads(0)[BURSTS] != extent.loads(1)[BURSTS]
    at_once = extent.loads(0)[AT_ONCE]
    assert (at_once.max_connections, at_once.requests, at_once.warmup_s) == (500, 500, 0)


def test_preferred_sizes_are_a_setting_of_the_sweep() -> None:
    """Beside the same maximum and wait without them; its row in the table names the sizes."""
    assert PREFERRED in grid()
    assert Setting(PREFERRED.size, PREFERRED.wait) in [*grid(), *ORIGINAL]
    assert PREFERRED.worker_settings["preferred_batch_sizes"] == "8,16,32"
    assert WorkerSettings.model_validate(PREFERRED.worker_settings).preferred_batch_sizes == "8,16,32"
    rows = [report.row(PREFERRED, load, figures(100)) for load in (AT_ONCE, BURSTS)]
    record = report.as_json(rows, {}, {})
    assert list(report.by_setting(record)) == [PREFERRED]
    assert "| 8/16/32 | 20 ms |" in report.table(record)
