"""Texts by which it shows whether a model gives the same vectors in another way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

PROBE = ["a", "two words", "the quick brown fox jumps over the lazy dog", "one two three four five " * 9, "b"]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""A model is run in another way, without padding or by another runtime, if the vectors of these texts then differ by no
more than their format does anyway. That of a text which had attended to its neighbours would differ by far more."""


TINY = 1e-30


def distance(found: Vector, expected: Vector) -> float:
    """Returns the largest difference between numbers of vectors, each vector made to have length 1."""
    apart = abs(_unit(found) - _unit(expected)).max()
    return float(apart)


def _unit(vectors: Vector) -> Vector:
    lengths: Vector = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    found: Vector = np.divide(vectors, np.maximum(lengths, TINY), dtype=np.float32)
    return found
