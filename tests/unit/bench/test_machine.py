"""Time and commit of a run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench import machine


def git(folder: Path, *arguments: str) -> None:
    """Runs git."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a checkout with one commit, which replaces the checkout of the benchmarks."""
    (tmp_path / "a.py").write_text("1\n", encoding="utf-8")
    (tmp_path / "table.md").write_text("1\n", encoding="utf-8")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    return tmp_path


def test_a_run_knows_when_it_began_and_its_commit(checkout: Path) -> None:
    """Changed code is marked; changed tables, which do not affect a measurement, are not."""
    (checkout / "table.md").write_text("2\n", encoding="utf-8")
    began = machine.run_metadata()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", began["started"])
    assert re.fullmatch(r"[0-9a-f]{7,}", began["commit"])
    (checkout / "a.py").write_text("2\n", encoding="utf-8")
    assert machine.run_metadata()["commit"] == f"{began['commit']} with changes"


def test_outside_of_a_checkout_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source archive without git can be measured too."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.run_metadata()["commit"] == "unknown"


def test_a_single_round_is_in_the_singular() -> None:
    """The description says "1 round"."""
    run = {"started": "2026-11-21 10:05", "commit": "abc1234", "repetitions": 1}
    assert machine.describe_run(run) == "2026-11-21 10:05 UTC, commit abc1234, 1 round"
