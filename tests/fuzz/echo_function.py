"""The function behind /predict: it takes any input."""

from __future__ import annotations

from collections.abc import Sequence


class TypeNames:
    """Returns the name of each input's type."""

    def transform(self, values: Sequence[object]) -> list[str]:
        """Returns these names."""
        return [type(each).__name__ for each in values]
