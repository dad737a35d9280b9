"""The results file of a comparison, and the figures of a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.cost import Cost
from bench.measurement import Measurement
from bench.peers import report
from bench.peers.comparison import PARTS, REDBATCH
from bench.peers.suite import NAMES, PARTIAL_PATH, QUICK_PATH, main, results_path
from bench.peers.testbed import figures_without_failures
from bench.wrk import LoadResult

ROOT = Path(__file__).parents[3]


def test_only_a_full_run_replaces_a_full_run() -> None:
    """A full run has all servers and all parts, in any order, and is not quick."""
    assert results_path(reversed(NAMES), reversed(PARTS), quick=False) == report.PATH
    assert results_path([REDBATCH, "mosec"], PARTS, quick=False) == PARTIAL_PATH
    assert results_path(NAMES, ["short"], quick=False) == PARTIAL_PATH
    assert results_path(NAMES, PARTS, quick=True) == results_path([REDBATCH], PARTS, quick=True) == QUICK_PATH
    assert len({report.PATH, PARTIAL_PATH, QUICK_PATH}) == 3


def test_the_help_names_the_files_of_partial_and_quick_runs() -> None:
    """The options for servers and for parts say that no document is written."""
    app = typer.Typer()
    app.command()(main)
    output = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout
    assert len(re.findall(r"peers-partial\.json", output)) == 2
    assert "peers-quick.json" in output


def test_failed_requests_are_excluded_from_the_rate() -> None:
    """With a quarter of refusals, the rate is that of the other answers; the failures are a separate figure."""
    load = LoadResult(requests=400, seconds=4, errors=100, p50_ms=1, p95_ms=2, p99_ms=3, max_ms=4)
    figures = figures_without_failures(Measurement(load, 120.0, Cost({}, {}, 0, 0), 0, 400))
    assert figures["requests_per_s"] == pytest.approx(90)
    assert figures["errors"] == 100


def test_the_measuring_process_imports_no_torch() -> None:
    """PyTorch would take memory and threads from the measured servers."""
    code = "import sys, bench.peers.suite; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
