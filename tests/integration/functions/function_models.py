"""Functions that misbehave on special inputs or arguments, and one that returns arrays."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpuworker.functions import InputRefusedError, PerInputFunction, VectorizedFunction

HANG_S = 3_600.0


class Echo(PerInputFunction):
    """Returns each input with the size of its batch; some texts make it fail or return wrong results.

    Args:
        batch_s: duration of a batch.
        deadly: an input that kills the process.
        dies_in: the method in which that input kills it.
    """

    def __init__(self, batch_s: float = 0.0, deadly: str = "", dies_in: str = "") -> None:
        self._batch_s = batch_s
        self._deadly, self._dies_in = deadly, dies_in

    def preprocess_input(self, value: Any) -> Any:  # noqa: ANN401
        """Refuses "!refuse", fails on "!preprocess", and dies on the deadly input if that is configured."""
        if self._dies_in == "preprocess" and value == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "!refuse":
            raise InputRefusedError("Not this one.")
        if value == "!preprocess":
            raise RuntimeError(f"cannot read {value}")
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Fails on "!transform", hangs on "!hang", returns too few results for "!less", and may die: see the class."""
        time.sleep(HANG_S if "!hang" in values else self._batch_s)
        if "!transform" in values:
            raise RuntimeError("cannot compute this")
        if self._dies_in == "transform" and self._deadly in values:
            os.kill(os.getpid(), signal.SIGKILL)
        return [[value, len(values)] for value in values if value != "!less"]

    def postprocess_output(self, output: Any) -> Any:  # noqa: ANN401
        """Returns an object that JSON cannot contain for "!postprocess", and 40 MiB for "!long"."""
        if output[0] == "!postprocess":
            return object()
        if output[0] == "!long":
            return "x" * (40 * 2**20)
        return output


class Batches(VectorizedFunction):
    """Returns each input with what `preprocess` made of it, and the sum of its batch; some inputs make it fail.

    Args:
        deadly: an input that kills the process in `preprocess`.
    """

    def __init__(self, deadly: str = "") -> None:
        self._deadly = deadly

    def preprocess(self, inputs: list[Any]) -> list[int]:
        """Returns the length of each input. Refuses "!refuse", fails on "!preprocess" and dies on the deadly one."""
        if self._deadly in inputs:
            os.kill(os.getpid(), signal.SIGKILL)
        if "!refuse" in inputs:
            raise InputRefusedError("Not this one.")
        if "!preprocess" in inputs:
            raise RuntimeError("cannot read these")
        return [len(each) for each in inputs]

    def transform(self, batch: list[int]) -> int:
        """Returns the sum of a batch."""
        time.sleep(0.02)
        return sum(batch)

    def postprocess(self, preprocessed: list[int], outputs: int) -> list[list[int]]:
        """Returns each length with the sum of all; one too few for a batch with a length of 13."""
        return [[length, outputs] for length in preprocessed if length != 13]


class Passing:
    """Returns its inputs; for some of them it raises TimeoutError the first times.

    Args:
        times: how often, by input.
    """

    retry_on = (TimeoutError,)

    def __init__(self, times: dict[str, int]) -> None:
        self._times = times

    def transform(self, values: list[str]) -> list[str]:
        """Returns the inputs. Raises TimeoutError if a file store, say, does not answer for one of them."""
        if len(values) == 1 and self._times.get(values[0], 0):
            self._times[values[0]] -= 1
            raise TimeoutError
        if any(self._times.get(each, 0) for each in values):
            raise TimeoutError
        return values


class Unavailable:
    """Returns its inputs, but raises TimeoutError for each batch that contains "!ever".

    Args:
        file: path of a file that gets a line with the inputs of each batch.
    """

    retry_on = (TimeoutError,)

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def transform(self, values: list[str]) -> list[str]:
        """Returns the inputs, or raises TimeoutError."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(" ".join(values) + "\n")
        if "!ever" in values:
            raise TimeoutError
        return values


class Gated(PerInputFunction):
    """Returns each input with the size of its batch; no batch ends before a file exists.

    Args:
        gate: path of the file that opens the gate.
        arrived: path of a file that it creates once it has this number of inputs.
        num_inputs: the number.
    """

    def __init__(self, gate: str, arrived: str, num_inputs: int) -> None:
        self._gate, self._arrived = Path(gate), Path(arrived)
        self._num_missing = num_inputs

    def preprocess_input(self, value: Any) -> Any:  # noqa: ANN401
        """Counts the inputs."""
        self._num_missing -= 1
        if self._num_missing == 0:
            self._arrived.touch()
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Waits for the file."""
        while not self._gate.exists():
            time.sleep(0.01)
        return [[value, len(values)] for value in values]


class Failing:
    """Returns its inputs; while a file exists, it raises OSError.

    Args:
        file: path of the file.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def transform(self, values: list[Any]) -> list[Any]:
        """Returns the inputs, or raises OSError."""
        if self._file.exists():
            raise OSError("the model is broken")
        return values


class Environment:
    """Returns for each input the value of the environment variable with that name."""

    def transform(self, values: list[str]) -> list[str | None]:
        """Looks the variables up in the engine process."""
        return [os.environ.get(name) for name in values]


class Outer(PerInputFunction):
    """Returns the outer product of a list of numbers with itself, as an array."""

    def transform(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        """Computes all products as one array of shape (n, numbers, numbers)."""
        rows = np.asarray(values, dtype=np.float32)
        return rows[:, :, None] * rows[:, None, :]


class Incomplete:
    """Has no `transform`."""

    def preprocess_input(self, value: Any) -> Any:  # noqa: ANN401
        """Returns the value."""
        return value


class Coroutine:
    """Its `transform` returns a coroutine."""

    async def transform(self, values: list[Any]) -> list[Any]:
        """Returns the values."""
        return values


class FailingConstructor(Outer):
    """Its constructor raises an error with a message of two lines."""

    def __init__(self) -> None:
        raise OSError("there are no weights\nanywhere")


class Forking(PerInputFunction):
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
    """Each value costs itself; the output is the sum of the costs in its batch.

    Args:
        batch_s: duration of a batch, whatever it costs.
    """

    def __init__(self, batch_s: float = 0.05) -> None:
        self._batch_s = batch_s

    def cost(self, value: Any) -> Any:  # noqa: ANN401
        """Returns the value."""
        return value

    def transform(self, values: Sequence[Any]) -> list[Any]:
        """Returns the cost of the batch for each value."""
        time.sleep(self._batch_s)
        return [sum(values)] * len(values)


class Prices:
    """Returns the name and the price in cents of each row; it changes the row in place, and a row without name fails.

    Args:
        batch_s: duration of a batch, at its start.
    """

    def __init__(self, batch_s: float) -> None:
        self._batch_s = batch_s

    def transform(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Computes all rows."""
        time.sleep(self._batch_s)
        for each in rows:
            each["price"] *= 100
        return [[each.pop("name").strip(), each["price"]] for each in rows]


def square(value: int) -> int:
    """Returns the square of a value."""
    return value * value
