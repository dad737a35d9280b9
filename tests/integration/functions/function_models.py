"""Functions that misbehave when they are told to, and one that gives arrays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuworker.functions import InputRefusedError, VectorizedFunction


class Echo(VectorizedFunction):
    """Gives back what it is given, with how many were in its batch; does what a text tells it to."""

    def __init__(self, batch_s: float = 0.0, deadly: str = "", dies_in: str = "") -> None:
        self._batch_s = batch_s
        self._deadly, self._dies_in = deadly, dies_in

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401
        """Refuses what asks for it, or dies of it."""
        if self._dies_in == "preprocess" and value == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "!refuse":
            raise InputRefusedError("Not this one.")
        if value == "!preprocess":
            raise RuntimeError(f"cannot read {value}")
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Fails, or dies, on values that say so."""
        time.sleep(self._batch_s)
        if "!transform" in values:
            raise RuntimeError("cannot compute this")
        if self._dies_in == "transform" and self._deadly in values:
            os.kill(os.getpid(), signal.SIGKILL)
        return [[value, len(values)] for value in values if value != "!less"]

    def postprocess(self, result: Any) -> Any:  # noqa: ANN401
        """Returns what JSON cannot hold, where that is asked for, or far too much."""
        if result[0] == "!postprocess":
            return object()
        if result[0] == "!long":
            return "x" * (40 * 2**20)
        return result


class Outer(VectorizedFunction):
    """Gives the outer product of a list of numbers with itself, as an array."""

    def transform(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        """Computes all of them at once, as an array of shape (n, numbers, numbers)."""
        rows = np.asarray(values, dtype=np.float32)
        return rows[:, :, None] * rows[:, None, :]


class Incomplete:
    """Has no transform."""

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401
        """Returns it."""
        return value


class Unmakeable(Outer):
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("there are no weights\nanywhere")


class Forking(VectorizedFunction):
    """Computes in processes that it forks, as a pool does, and says which process is the engine."""

    def __init__(self) -> None:
        self._pool = multiprocessing.get_context("fork").Pool(2)

    def transform(self, values: Sequence[Any]) -> list[list[int]]:
        """Squares the values in the pool."""
        return [[square, os.getpid()] for square in self._pool.map(square_of, values)]


def square_of(value: int) -> int:
    """Returns a square."""
    return value * value
