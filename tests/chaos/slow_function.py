"""A function that keeps its inputs in the gateway: it takes seconds for each batch."""

from __future__ import annotations

import time
from collections.abc import Sequence


class Slow:
    """Returns the length of each input, after some seconds."""

    def transform(self, values: Sequence[object]) -> list[int]:
        """Returns these lengths."""
        time.sleep(3)
        return [len(str(each)) for each in values]
