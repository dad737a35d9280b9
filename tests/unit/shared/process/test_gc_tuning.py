"""The garbage collector of a process that serves."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.process.gc_tuning import collect_rarely

ROOT = Path(__file__).parents[4]
NOTE_COLLECTIONS = """
import atexit
import gc
gc.callbacks.append(lambda phase, info: info["generation"] == 2 and print("collection", phase))
atexit.register(gc.callbacks.clear)
"""
"""Those of all objects: of the younger ones, Python has a few before its program begins."""


class Cycle:
    """An object that refers to itself, so that only a collection frees it."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Cycle.freed += 1


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Restores the collector after the test. What is frozen stays so, as after the collection of the tests."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.usefixtures("thresholds")
def test_collections_are_rare_and_still_come() -> None:
    """The objects of a thousand requests start no collection; reference cycles are freed eventually."""
    gc.disable()
    collect_rarely()
    before = [each["collections"] for each in gc.get_stats()]
    objects = [[] for _ in range(10_000)]  # type: list[list[int]]
    assert [each["collections"] for each in gc.get_stats()] == before
    assert len(objects) == 10_000
    Cycle.freed = 0
    for _ in range(60_000):
        Cycle()
    assert Cycle.freed > 0


@pytest.mark.parametrize("module", ["api", "gpuworker"])
def test_a_process_starts_without_collections(module: str, tmp_path: Path) -> None:
    """Before it serves, a gateway or worker scans no objects that stay; here it ends at a wrong setting."""
    (tmp_path / "sitecustomize.py").write_text(NOTE_COLLECTIONS, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "REDBATCH_ADMIN_PORT": "none"}
    command = [sys.executable, "-P", "-m", module]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
