"""Functions that misbehave on special inputs or arguments, and one that returns arrays."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuworker.functions import InputRefusedError, VectorizedFunction


class Echo(VectorizedFunction):
    """Returns each input with the size of its batch; some texts make it fail or return wrong results.

    Args:
        batch_s: duration of a batch.
        deadly: an input that kills the process.
        dies_in: the method in which that input kills it.
    """

    def __init__(self, batch_s: float = 0.0, deadly: str = "", dies_in: str = "") -> None:
        self._batch_s = batch_s
        self._deadly, self._dies_in = deadly, dies_in

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401
        """Refuses "!refuse", fails on "!preprocess", and dies on the deadly input if that is configured."""
        if self._dies_in == "preprocess" and value == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "!refuse":
            raise InputRefusedError("Not this one.")
        if value == "!preprocess":
            raise RuntimeError(f"cannot read {value}")
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Fails on "!transform", returns too few results for "!less", and dies on the deadly input if configured."""
        time.sleep(self._batch_s)
        if "!transform" in values:
            raise RuntimeError("cannot compute this")
        if self._dies_in == "transform" and self._deadly in values:
            os.kill(os.getpid(), signal.SIGKILL)
        return [[value, len(values)] for value in values if value != "!less"]

    def postprocess(self, result: Any) -> Any:  # noqa: ANN401
        """Returns an object that JSON cannot contain for "!postprocess", and 40 MiB for "!long"."""
        if result[0] == "!postprocess":
            return object()
        if result[0] == "!long":
            return "x" * (40 * 2**20)
        return result


class Outer(VectorizedFunction):
    """Returns the outer product of a list of numbers with itself, as an array."""

    def transform(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        """Computes all products as one array of shape (n, numbers, numbers)."""
        rows = np.asarray(values, dtype=np.float32)
        return rows[:, :, None] * rows[:, None, :]


class Incomplete:
    """Has no `transform` and no `postprocess`."""

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401
        """Returns the value."""
        return value


class FailingConstructor(Outer):
    """Its constructor raises an error with a message of two lines."""

    def __init__(self) -> None:
        raise OSError("there are no weights\nanywhere")


class Forking(VectorizedFunction):
    """Computes squares in a pool of forked processes, and returns the engine's pid with each."""

    def __init__(self) -> None:
        self._pool = multiprocessing.get_context("fork").Pool(2)

    def transform(self, values: Sequence[Any]) -> list[list[int]]:
        """Computes the squares in the pool."""
        return [[result, os.getpid()] for result in self._pool.map(square, values)]


class Describe(VectorizedFunction):
    """Describes each input: its type, and its digest if it is binary.

    Args:
        batch_s: duration of a batch.
    """

    def __init__(self, batch_s: float = 0.0) -> None:
        self._batch_s = batch_s

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Describes all values."""
        time.sleep(self._batch_s)
        return [self._describe(each) for each in values]

    def _describe(self, value: Any) -> list[Any]:  # noqa: ANN401
        if isinstance(value, bytes):
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if isinstance(value, np.ndarray):
            return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        return [type(value).__name__, value]


class Fill(VectorizedFunction):
    """Returns as many bytes as an input says, all of the same value: the input modulo 251.

    Args:
        batch_s: duration of a batch.
    """

    def __init__(self, batch_s: float = 0.0) -> None:
        self._batch_s = batch_s

    def transform(self, values: Sequence[Any]) -> list[bytes]:
        """Makes the bytes."""
        time.sleep(self._batch_s)
        return [bytes([each % 251]) * each for each in values]


class Weighed(VectorizedFunction):
    """Each value costs itself; the output is the sum of the costs in its batch."""

    def cost(self, value: Any) -> Any:  # noqa: ANN401
        """Returns the value."""
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Returns the cost of the batch for each value."""
        time.sleep(0.05)
        return [sum(values)] * len(values)


def square(value: int) -> int:
    """Returns the square of a value."""
    return value * value
