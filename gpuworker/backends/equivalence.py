"""Checks that a model returns the same vectors when it runs in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

PROBE_TEXTS = ["a", "two words", "the quick brown fox jumps over the lazy dog", "one two three four five " * 9, "b"]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""A model may run in another way, without padding or by another runtime, if the vectors of the probe texts then differ
by no more than their format makes them differ anyway. A text that attended to its neighbours would differ far more."""


TINY = 1e-30


def distance(found: Vector, expected: Vector) -> float:
    """Returns the largest difference between two numbers of the vectors, each vector scaled to length 1."""
    difference = abs(_unit(found) - _unit(expected)).max()
    return float(difference)


def largest_difference(found: Vector, expected: Vector) -> float:
    """Returns the largest difference between two numbers, as a part of the largest number if that is over 1."""
    return float(abs(found - expected).max() / max(1.0, abs(expected).max()))


def _unit(vectors: Vector) -> Vector:
    lengths: Vector = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    unit: Vector = np.divide(vectors, np.maximum(lengths, TINY), dtype=np.float32)
    return unit
