"""The scores of rows, and their ranks among those of the same query, as columns of an output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from redbatch.embed.output_columns import OutputColumns, Slice, Vectors
from redbatch.embed.readers import InputRow

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

SCORE, RANK = "score", "rank"


class ScoreColumns(OutputColumns):
    """The score of each row, and its rank.

    Args:
        ranks: of all rows of the file, from 1.
    """

    names = (SCORE, RANK)

    def __init__(self, ranks: NDArray[np.int32]) -> None:
        self._ranks = ranks

    def records(self, start: int, vectors: Vectors) -> Iterator[dict[str, object]]:
        """Yields score and rank of each row."""
        ranks = self._ranks[start : start + len(vectors)].tolist()
        return ({SCORE: score, RANK: rank} for score, rank in zip(vectors[:, 0], ranks, strict=True))

    def fields(self, dim: int) -> list[pa.Field]:  # noqa: ARG002 - always 1
        """Returns the types of the columns."""
        import pyarrow as pa

        return [pa.field(SCORE, pa.float32()), pa.field(RANK, pa.int32())]

    def arrays(self, start: int, vectors: Vectors, missing: NDArray[np.bool_]) -> list[pa.Array]:
        """Returns the columns of rows."""
        import pyarrow as pa

        ranks = self._ranks[start : start + len(vectors)]
        return [pa.array(vectors[:, 0], pa.float32(), mask=missing), pa.array(ranks, pa.int32(), mask=missing)]


def score_columns(rows: Iterable[InputRow], slices: Iterable[Slice]) -> ScoreColumns:
    """Returns the columns for the rows of a file, and their scores."""
    numbers: dict[str | None, int] = {}
    queries = np.array([numbers.setdefault(row.query, len(numbers)) for row in rows], dtype=np.int64)
    scores = [vectors[:, 0] if vectors.shape[1] else np.full(len(vectors), np.nan, "<f4") for vectors, _ in slices]
    return ScoreColumns(rank_rows(queries, np.concatenate(scores)))


def rank_rows(queries: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int32]:
    """Returns the rank of each row among those of its query, from 1 for the highest score.

    Rows with equal scores are ranked in their order; rows without a score (NaN) come last.
    """
    order = np.lexsort((-scores, queries))
    sorted_queries = queries[order]
    firsts = np.flatnonzero(np.diff(sorted_queries, prepend=-1))
    places = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = places + 1
    return ranks
