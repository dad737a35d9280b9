"""The columns of an output beside those of the input: for JSON lines and for Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Vectors = NDArray[np.float32]
"""Vectors, or scores in rows of one number, of shape (rows, dim)."""

Slice = tuple[Vectors, dict[int, str]]
"""Vectors of a slice, and the fault of each row without a vector, by index."""

EMBEDDING = "embedding"


class OutputColumns(Protocol):
    """The columns that a command adds.

    Attributes:
        names: of the columns.
    """

    names: tuple[str, ...]

    def records(self, start: int, vectors: Vectors) -> Iterator[dict[str, object]]:
        """Yields the values of rows, whose first is row `start` of the file."""

    def fields(self, dim: int) -> list[pa.Field]:
        """Returns the types of the columns, for vectors of `dim` numbers."""

    def arrays(self, start: int, vectors: Vectors, missing: NDArray[np.bool_]) -> list[pa.Array]:
        """Returns the columns of rows, whose first is row `start` of the file; null where one is missing."""


class VectorColumn(OutputColumns):
    """The vector of each row."""

    names = (EMBEDDING,)

    def records(self, start: int, vectors: Vectors) -> Iterator[dict[str, object]]:  # noqa: ARG002 - as its interface
        """Yields the vector of each row."""
        return ({EMBEDDING: vector} for vector in vectors)

    def fields(self, dim: int) -> list[pa.Field]:
        """Returns the type of the column: lists of float32."""
        import pyarrow as pa

        return [pa.field(EMBEDDING, pa.list_(pa.float32(), dim))]

    def arrays(self, start: int, vectors: Vectors, missing: NDArray[np.bool_]) -> list[pa.Array]:  # noqa: ARG002 - as above
        """Returns the column of rows."""
        import pyarrow as pa

        dim = vectors.shape[1]
        return [pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim, mask=pa.array(missing))]
