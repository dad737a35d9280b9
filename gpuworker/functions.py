"""The protocol of a function of your own: any class with these methods is served with `--model package.module:Class`.

    class Squares:
        def preprocess(self, value): return float(value)
        def transform(self, values): return [value**2 for value in values]
        def postprocess(self, result): return result

Imports nothing: a module with such a class needs no more of Redbatch than it wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class InputRefusedError(Exception):
    """An input, or what is asked of it, is not for this model. The message is for the client: it holds no text."""


class VectorizedFunction(Protocol):
    """Takes inputs one by one, computes them in batches, and gives outputs one by one.

    It is made in the engine process, with the setting `model_args` as keyword arguments. Subclass it, and `preprocess`
    and `postprocess` may be left out; or have the three methods, and it need not be known here.

    One input may be computed twice, when a worker dies over it, and equal inputs that wait at the same time are
    computed once: so outputs must depend on nothing but the input.
    """

    def preprocess(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds, and whatever `transform` takes
        """Returns one input, as JSON gives it, in the form that `transform` takes. Runs while a batch is computed.

        Raises:
            InputRefusedError: this is no such input. The client gets the message, with status 400.
            Exception: anything else is taken for a fault of this class: the client gets its type alone, with 500.
        """
        return value

    def transform(self, values: Sequence[Any]) -> Sequence[Any]:
        """Returns as many results as there are values, in their order: a sequence, or an array of shape (n, ...).

        Args:
            values: 1 to `max_batch_size` of what `preprocess` has returned. Never the same call twice at a time.

        Raises:
            Exception: the batch is run again in halves, until the inputs that cause it are alone; these fail.
        """
        raise NotImplementedError

    def postprocess(self, result: Any) -> Any:  # noqa: ANN401 - see above
        """Returns one output: what JSON can hold, or an array of numpy or torch, which goes out as nested lists."""
        return result
