"""A function that keeps its inputs in the gateway: it takes seconds for each batch."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuworker.functions import VectorizedFunction


class Slow(VectorizedFunction):
    """Returns the length of each input, after some seconds.

    The base class has the methods that earlier commits require (`--checkout`).
    """

    def transform(self, values: Sequence[object]) -> list[int]:
        """Returns these lengths."""
        time.sleep(3)
        return [len(str(each)) for each in values]
