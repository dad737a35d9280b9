"""Functions whose module is imported when they are called."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuworker.engine.deferred_import import deferred

MODULE = "colorsys"


def test_a_function_imports_its_module_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported in the block is a function of the module, which is imported at the first call."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with deferred(MODULE):
        from colorsys import rgb_to_hsv  # noqa: PLC0415 - the subject

        assert not hasattr(sys.modules[MODULE], "__file__")
    assert MODULE not in sys.modules
    assert rgb_to_hsv(1.0, 1.0, 1.0) == (0.0, 0.0, 1.0)
    assert hasattr(sys.modules[MODULE], "__file__")


def test_a_module_that_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the module is imported already, the block changes nothing."""
    module = sys.modules["json"]
    with deferred("json"):
        assert sys.modules["json"] is module
    assert sys.modules["json"] is module


def test_engines_do_without_what_is_deferred() -> None:
    """The libraries of an engine can be imported, and compare vectors all the same."""
    script = """
import sys
from gpuworker.engine.forkserver import UNUSED, import_modules
import_modules(["torch", "sentence_transformers"])
print(UNUSED in sys.modules, "scipy.stats" in sys.modules)
import torch
from sentence_transformers.util import manhattan_sim
print(manhattan_sim(torch.zeros(1, 2).to_sparse(), torch.ones(1, 2).to_sparse()).item(), UNUSED in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["False False", "-2.0 True"]
