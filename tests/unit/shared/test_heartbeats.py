"""Which workers count as serving different models."""

from __future__ import annotations

import pytest

from shared.heartbeats import mixed_models
from shared.messages import Heartbeat


def beat(model: str, revision: str, dim: int = 384) -> Heartbeat:
    """Returns the heartbeat of a worker with a model."""
    return Heartbeat("w", "h", 1, "cpu", model, dim, "ready", 0.0, 0, 0, 0, revision=revision)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], []),
        ([beat("a/bge", "1"), beat("b/bge", "2")], ["a/bge (384 dimensions)", "b/bge (384 dimensions)"]),
        ([beat("m:A", "1", 0), beat("n:A", "2", 0)], ["m:A", "n:A"]),
        ([beat("./bge", "1"), beat("./bge", "2", 768)], ["./bge (384 dimensions)", "./bge (768 dimensions)"]),
        ([beat("a/bge", "1"), beat("b/bge", "1")], []),
        ([beat("a/bge", "1"), beat("a/bge", "2")], []),
        ([beat("a/bge", "1"), beat("b/bge", "", 0)], []),
        ([beat("minilm", "1"), beat("sentence-transformers/all-MiniLM-L6-v2", "2")], []),
    ],
    ids=["none", "names", "classes", "dimensions", "one model in two folders", "an update", "loading", "two names"],
)
def test_different_models_differ_in_revision_and_in_name_or_dimensions(
    workers: list[Heartbeat], expected: list[str]
) -> None:
    """An update of a model, two names of one, and a model that still loads are no mix."""
    assert mixed_models(workers) == expected
