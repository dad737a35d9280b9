"""The file of ranges of int8 vectors: what is read of it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuworker.backends.int8_ranges import MAX_RANGE_DIM, load_ranges, with_ranges
from gpuworker.backends.simulated import DIM, SimulatedBackend
from gpuworker.ipc.messages import Ready
from gpuworker.model_spec import ModelLoadError, parse_model

NULL = SimulatedBackend(parse_model("null"))
RANGES = np.vstack([np.zeros(DIM), np.ones(DIM)])


def test_a_file_has_the_ranges_of_all_dimensions(tmp_path: Path) -> None:
    """As float32; and a model with them has another revision."""
    np.save(tmp_path / "ranges.npy", RANGES)
    ranges = load_ranges(str(tmp_path / "ranges.npy"), NULL)
    assert ranges == RANGES.astype("<f4").tobytes()
    ready = Ready(revision="sha256")
    described = [with_ranges(ready, each) for each in (b"", ranges, ranges[4:])]
    assert described[0] == ready
    assert [each.int8_ranges for each in described[1:]] == [ranges, ranges[4:]]
    assert len({each.revision for each in described}) == 3
    assert load_ranges(None, NULL) == b""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (RANGES[:, :-1], "has float64 of shape"),
        (RANGES[0], "has float64 of shape"),
        (RANGES.astype(int), "has int64 of shape"),
        (RANGES[::-1], "the smallest numbers, then the largest"),
        (RANGES * np.nan, "the smallest numbers, then the largest"),
        (np.array([{}] * 2, dtype=object), "no .npy file of numbers: write it with numpy.save$"),
        (b"", "no .npy file of numbers: write it with numpy.save$"),
        (b"\x80\x04K\x01.", "no .npy file of numbers: write it with numpy.save$"),
        (None, "cannot be read: "),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: Any, reason: str) -> None:  # noqa: ANN401 - arrays or bytes
    """Nothing is unpickled."""
    path = tmp_path / "ranges.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(ModelLoadError, match=reason):
        load_ranges(str(path), NULL)


def test_a_model_without_vectors_has_no_ranges(tmp_path: Path) -> None:
    """A reranker, as an example."""
    with pytest.raises(ModelLoadError, match="returns none"):
        load_ranges(str(tmp_path), SimulatedBackend(parse_model("simulated:base_ms=0,labels=1")))


def test_ranges_of_very_long_vectors_are_refused(tmp_path: Path) -> None:
    """Each heartbeat has all of them."""
    backend = SimulatedBackend(parse_model("null"))
    backend.dim = MAX_RANGE_DIM + 1
    np.save(tmp_path / "ranges.npy", np.vstack([np.zeros(backend.dim), np.ones(backend.dim)]))
    with pytest.raises(ModelLoadError, match="up to 2048 dimensions: leave it out"):
        load_ranges(str(tmp_path / "ranges.npy"), backend)
