"""The accuracy of a number format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from bench import dtype
from bench.dtype import cosines, figures
from bench.figures import Row
from bench.limit import LimitError
from bench.machine import ROOT
from bench.rounds import Round
from bench.stage import Extent, Stage
from bench.tables import cosine

Ran = subprocess.CompletedProcess[str]


def stage_of(number: int) -> Stage:
    """Returns the stage of one of three rounds."""
    return Stage(Extent(), Path(), Round(number, 3), lambda _text: None)


def test_a_format_is_compared_with_float32_row_by_row() -> None:
    """The worst and the mean of all, as 1 - cosine; and how many times as fast it was."""
    vectors = {
        "float32": np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32),
        "bfloat16": np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32),
    }
    found = figures("bfloat16", {"float32": 4.0, "bfloat16": 2.0}, vectors)
    assert cosines(vectors["bfloat16"], vectors["float32"]) == pytest.approx([0.6, 1.0])
    assert found == pytest.approx(
        {"texts_per_s": 1.0, "times_float32": 2.0, "largest_distance": 0.4, "mean_distance": 0.2}
    )


def test_a_cosine_near_1_keeps_its_digits() -> None:
    """The distance is what is stored, with five digits."""
    assert cosine(1.3412e-4) == "0.999866"
    assert cosine(0.0) == "1.000000"


def test_formats_are_measured_in_the_environment_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the benchmark's own is; each round begins with another format, and each format is a row."""
    asked: list[Sequence[str]] = []

    def answer(command: Sequence[str], *, env: Mapping[str, str], **_rest: object) -> Ran:
        assert "MALLOC_TOP_PAD_" in env
        assert "REDBATCH_DTYPE" not in env
        asked.append(command[-3:])
        return Ran(command, 0, json.dumps({"float32": {"texts_per_s": 1.0}, "bfloat16": {"texts_per_s": 2.0}}))

    monkeypatch.setenv("REDBATCH_DTYPE", "bfloat16")
    monkeypatch.setattr(subprocess, "run", answer)
    rows, *_ = [dtype.run(stage_of(number)) for number in range(3)]
    assert [command[0] for command in asked] == ["float32", "bfloat16", "float16"]
    assert rows == [
        Row("dtype", {"format": "float32"}, {"texts_per_s": 1.0}),
        Row("dtype", {"format": "bfloat16"}, {"texts_per_s": 2.0}),
    ]


def test_a_model_that_cannot_be_loaded_is_a_failure_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the process said."""
    monkeypatch.setattr(subprocess, "run", lambda command, **_rest: Ran(command, 1, "", "no such model\n"))
    with pytest.raises(LimitError, match=r"bench\.dtype failed: no such model"):
        dtype.run(stage_of(0))


def test_the_benchmark_itself_imports_no_torch() -> None:
    """It would take memory, and threads, of what is measured."""
    code = "import sys, bench.suite; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
