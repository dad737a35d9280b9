"""Where a run beside other servers leaves its results, and what its figures are."""

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


def test_only_a_whole_run_replaces_a_whole_run() -> None:
    """All servers and all parts, in any order, and at full length."""
    assert results_path(reversed(NAMES), reversed(PARTS), quick=False) == report.PATH
    assert results_path([REDBATCH, "mosec"], PARTS, quick=False) == PARTIAL_PATH
    assert results_path(NAMES, ["short"], quick=False) == PARTIAL_PATH
    assert results_path(NAMES, PARTS, quick=True) == results_path([REDBATCH], PARTS, quick=True) == QUICK_PATH
    assert len({report.PATH, PARTIAL_PATH, QUICK_PATH}) == 3


def test_the_help_says_where_a_part_of_a_run_goes() -> None:
    """Somebody who asks for one server is not surprised by a table that is as it was."""
    app = typer.Typer()
    app.command()(main)
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout
    assert len(re.findall(r"peers-partial\.json", said)) == 2
    assert "peers-quick.json" in said


def test_failed_requests_are_no_part_of_the_rate() -> None:
    """A quarter of the answers were refusals: the rate is of the others, and the failures are told."""
    load = LoadResult(requests=400, seconds=4, errors=100, p50_ms=1, p95_ms=2, p99_ms=3, max_ms=4)
    figures = figures_without_failures(Measurement(load, 120.0, Cost({}, {}, 0, 0), 0, 400))
    assert figures["requests_per_s"] == pytest.approx(90)
    assert figures["errors"] == 100


def test_what_measures_imports_no_torch() -> None:
    """Its memory and its threads would be beside the servers that are measured."""
    found = "import sys, bench.peers.suite; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", found], cwd=ROOT, check=False).returncode == 0
