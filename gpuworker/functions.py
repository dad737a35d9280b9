"""The protocols of a user's function: a class with `transform` is served with `--model package.module:Class`.

    class Squares:
        def transform(self, values): return [value**2 for value in values]

Two pairs of optional methods stand around `transform`. Their names say what they take:

- a whole batch: `preprocess(inputs)` and `postprocess(preprocessed, outputs)`, see VectorizedFunction;
- one input: `preprocess_input(value)` and `postprocess_output(output)`, see PerInputFunction.

A class may have any of the four. If it has both of one side, the methods for one input are the outer ones. It may have
two more methods: `warmup()`, and `cost(value)`, which returns what an input counts towards `max_batch_tokens`, from 1;
without it each counts as 1. Its value is what `preprocess_input` returned, or else the input.

An input is a JSON value, `bytes`, or a numpy array. An output is a JSON value, `bytes`, or an array of numpy or torch,
which becomes nested lists.

This module imports nothing of Redbatch, and a class need not import this module. The engine process creates the class,
with the setting `model_args` as keyword arguments. An input may be computed twice, if a worker dies while it runs, and
equal inputs that wait at the same time are computed once: so outputs must depend only on the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class InputRefusedError(Exception):
    """The model does not accept an input or its options. The client gets the message: keep input text out of it."""


InputRefused = InputRefusedError
"""The old name: classes of users import it."""


class VectorizedFunction(Protocol):
    """A function whose methods take whole batches. A subclass may omit all but `transform`.

    Any exception of any method except InputRefusedError counts as a fault of the class: the batch runs again in halves,
    until each input that causes the error is alone. These fail: the client gets the type of the error, with status 500.
    Exceptions whose types the class lists in its attribute `retry_on` are tried again first.
    """

    def preprocess(self, inputs: list[Any]) -> Any:  # noqa: ANN401 - any argument of `transform`
        """Converts the inputs of a batch to the form that `transform` takes.

        Runs for the next batch, if that is full, in another thread while `transform` runs for the present one.

        Args:
            inputs: 1 to `max_batch_size` inputs.

        Raises:
            InputRefusedError: an input is invalid. Once that input is alone, its client gets the message, with 400.
        """
        return inputs

    def transform(self, batch: Any) -> Any:  # noqa: ANN401 - what `preprocess` returned
        """Computes a batch: what `preprocess` returned, or the list of inputs. Calls never run at the same time.

        Returns one result for each input, in their order: a sequence, or an array of shape (n, ...). If there is a
        `postprocess`, only that has to.
        """
        raise NotImplementedError

    def postprocess(self, preprocessed: Any, outputs: Any) -> Sequence[Any]:  # noqa: ANN401, ARG002 - see above
        """Converts what `transform` returned to one output for each input, in their order.

        Args:
            preprocessed: what `preprocess` returned; the list of inputs if there is no such method.
            outputs: what `transform` returned for it.
        """
        results: Sequence[Any] = outputs
        return results


class PerInputFunction(Protocol):
    """A function whose inputs are prepared one by one as they arrive. A subclass may omit all but `transform`.

    Exceptions have the same effect as in VectorizedFunction, except in `preprocess_input`: there they fail the input.
    """

    def preprocess_input(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value, and any argument of `transform`
        """Converts one input. Runs when the input arrives, while batches are computed.

        Raises:
            InputRefusedError: the input is invalid. The client gets the message, with status 400.
        """
        return value

    def transform(self, values: Sequence[Any]) -> Sequence[Any]:
        """Computes one result for each value, in their order: a sequence, or an array of shape (n, ...).

        Args:
            values: 1 to `max_batch_size` results of `preprocess_input`. Calls never run at the same time.
        """
        raise NotImplementedError

    def postprocess_output(self, output: Any) -> Any:  # noqa: ANN401 - see above
        """Converts one result to an output."""
        return output
