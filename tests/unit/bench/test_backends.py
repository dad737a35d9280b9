"""Speed and accuracy of backends and number formats."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from bench import backends
from bench.backends import BASELINE, VARIANTS, cosines, figures
from bench.child_process import ModuleError
from bench.figures import Row
from bench.machine import ROOT
from bench.rounds import Round
from bench.step import Extent, StepContext
from bench.tables import cosine

Completed = subprocess.CompletedProcess[str]


def context_of(number: int) -> StepContext:
    """Returns the context of one of three rounds."""
    return StepContext(Extent(), Path(), Round(number, 3), lambda _text: None)


def test_a_variant_is_compared_with_the_baseline_row_by_row() -> None:
    """The figures have the maximum and the mean of 1 - cosine, and the speedup for each mix of texts."""
    vectors = {
        BASELINE: np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32),
        "onnx float32": np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32),
    }
    found = figures("onnx float32", {BASELINE: {"short": 4.0}, "onnx float32": {"short": 2.0}}, vectors)
    assert cosines(vectors["onnx float32"], vectors[BASELINE]) == pytest.approx([0.6, 1.0])
    assert found == pytest.approx(
        {"short_texts_per_s": 1.0, "short_speedup": 2.0, "largest_distance": 0.4, "mean_distance": 0.2}
    )


def test_a_cosine_near_1_keeps_its_digits() -> None:
    """Results store the distance, which keeps five digits of the difference to 1."""
    assert cosine(1.3412e-4) == "0.999866"
    assert cosine(0.0) == "1.000000"


def test_variants_are_measured_in_the_environment_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has none of the benchmark's settings; each round starts with another variant; each variant is a row."""
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], *, env: Mapping[str, str], **_rest: object) -> Completed:
        assert "MALLOC_TOP_PAD_" in env
        assert "REDBATCH_DTYPE" not in env
        commands.append(command[-len(VARIANTS) :])
        return Completed(command, 0, json.dumps({BASELINE: {"texts_per_s": 1.0}, "onnx float32": {"texts_per_s": 2.0}}))

    monkeypatch.setenv("REDBATCH_DTYPE", "bfloat16")
    monkeypatch.setattr(subprocess, "run", run)
    rows, *_ = [backends.run(context_of(number)) for number in range(3)]
    assert [command[0] for command in commands] == [VARIANTS[0], VARIANTS[3], VARIANTS[6]]
    assert rows == [
        Row("backends", {"backend": "torch", "format": "float32", "with": ""}, {"texts_per_s": 1.0}),
        Row("backends", {"backend": "onnx", "format": "float32", "with": ""}, {"texts_per_s": 2.0}),
    ]


def test_a_model_that_cannot_be_loaded_is_a_failure_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the stderr of the process."""
    monkeypatch.setattr(subprocess, "run", lambda command, **_rest: Completed(command, 1, "", "no such model\n"))
    with pytest.raises(ModuleError, match=r"bench\.backends failed: no such model"):
        backends.run(context_of(0))


def test_the_benchmark_itself_imports_no_torch() -> None:
    """Importing the suite does not load torch, which would take memory and threads from the measured servers."""
    code = "import sys, bench.suite; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
