"""The protocol of a user's function: a class with these methods is served with `--model package.module:Class`.

    class Squares:
        def preprocess(self, value): return float(value)
        def transform(self, values): return [value**2 for value in values]
        def postprocess(self, result): return result

This module imports nothing of Redbatch, and a class need not import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class InputRefusedError(Exception):
    """The model does not accept an input or its options. The client gets the message: keep input text out of it."""


InputRefused = InputRefusedError
"""The old name: classes of users import it."""


class VectorizedFunction(Protocol):
    """Accepts inputs one by one, computes them in batches, and returns outputs one by one.

    The engine process creates it, with the setting `model_args` as keyword arguments. A subclass may omit `preprocess`
    and `postprocess`; a class with the three methods need not be a subclass.

    A class may have two more methods: `warmup()`, and `cost(value)`, which returns what a value of `preprocess` counts
    towards `max_batch_tokens`, from 1. Without it each counts as 1.

    An input may be computed twice, if a worker dies while it runs, and equal inputs that wait at the same time are
    computed once: so outputs must depend only on the input.
    """

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value, and any argument of `transform`
        """Converts one input to the form that `transform` takes: a JSON value, `bytes`, or a numpy array.

        Runs while a batch is computed.

        Raises:
            InputRefusedError: the input is invalid. The client gets the message, with status 400.
            Exception: any other exception counts as a fault of this class: the client gets only its type, with 500.
        """
        return value

    def transform(self, values: Sequence[Any]) -> Sequence[Any]:
        """Computes one result for each value, in their order: a sequence, or an array of shape (n, ...).

        Args:
            values: 1 to `max_batch_size` results of `preprocess`. Calls never run at the same time.

        Raises:
            Exception: the batch runs again in halves, until each input that causes the error is alone; these fail.
        """
        raise NotImplementedError

    def postprocess(self, result: Any) -> Any:  # noqa: ANN401 - see above
        """Converts one result to an output: JSON, `bytes`, or an array of numpy or torch, which is sent as lists."""
        return result
