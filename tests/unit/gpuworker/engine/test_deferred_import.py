"""Functions whose module is imported when they are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuworker.engine.deferred_import import defer_import

MODULE = "colorsys"


def test_a_function_imports_its_module_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported in the block is a function of the module, which is imported at the first call."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with defer_import(MODULE):
        from colorsys import rgb_to_hsv  # noqa: PLC0415 - the subject

        assert not hasattr(sys.modules[MODULE], "__file__")
    assert MODULE not in sys.modules
    assert rgb_to_hsv(1.0, 1.0, 1.0) == (0.0, 0.0, 1.0)
    assert hasattr(sys.modules[MODULE], "__file__")


def test_a_call_in_the_block_imports_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may call the function while it is imported."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with defer_import(MODULE):
        from colorsys import rgb_to_hsv  # noqa: PLC0415 - the subject

        assert rgb_to_hsv(1.0, 1.0, 1.0) == (0.0, 0.0, 1.0)
    assert hasattr(sys.modules[MODULE], "__file__")


def test_a_library_that_needs_more_of_it_is_imported_all_the_same(tmp_path: Path) -> None:
    """A module below the deferred one cannot be imported in its place; then nothing is deferred."""
    (tmp_path / "library.py").write_text("from sklearn.metrics.pairwise import cosine_similarity\n", encoding="utf-8")
    script = f"""
import sys
from gpuworker.engine.forkserver import DEFERRED_MODULE, import_modules
sys.path.append({str(tmp_path)!r})
import_modules(["library"])
print(sys.modules["library"].cosine_similarity([[1.0]], [[2.0]]).item(), DEFERRED_MODULE in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["1.0 True"]


def test_a_module_that_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the module is imported already, the block changes nothing."""
    module = sys.modules["json"]
    with defer_import("json"):
        assert sys.modules["json"] is module
    assert sys.modules["json"] is module


def test_engines_do_without_what_is_deferred() -> None:
    """The libraries of an engine can be imported, and compare vectors all the same."""
    script = """
import sys
from gpuworker.engine.forkserver import DEFERRED_MODULE, import_modules
import_modules(["torch", "sentence_transformers"])
print(DEFERRED_MODULE in sys.modules, "scipy.stats" in sys.modules)
import torch
from sentence_transformers.util import manhattan_sim
print(manhattan_sim(torch.zeros(1, 2).to_sparse(), torch.ones(1, 2).to_sparse()).item(), DEFERRED_MODULE in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["False False", "-2.0 True"]
