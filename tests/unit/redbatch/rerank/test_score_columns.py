"""The ranks of rows among those of their query."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from redbatch.embed.readers import InputRow
from redbatch.rerank.score_columns import rank_rows, score_columns


def test_rows_are_ranked_by_query() -> None:
    """From 1 for the best; equal scores in their order; a slice without scores, and a row without one, come last."""
    queries = ["a", "b", "a", "a", "b", "a", "c"]
    rows = [InputRow(number, "text", query=query) for number, query in enumerate(queries)]
    first = np.array([[0.1], [0.5], [0.9], [np.nan], [0.7]], dtype="<f4")
    columns = score_columns(rows, [(first, {3: "no"}), (np.empty((2, 0), dtype="<f4"), {0: "no", 1: "no"})])
    assert [each["rank"] for each in columns.records(0, np.zeros((7, 1), dtype="<f4"))] == [2, 2, 1, 3, 1, 4, 1]
    assert [each["rank"] for each in columns.records(4, np.zeros((2, 1), dtype="<f4"))] == [1, 4]


@given(
    st.integers(0, 60).flatmap(
        lambda n: st.tuples(arrays(np.int64, n, elements=st.integers(0, 3)), arrays(np.float32, n))
    )
)
def test_the_ranks_of_a_query_count_from_one(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Whatever the scores are, and a better score has a better rank."""
    queries, scores = rows
    ranks = rank_rows(queries, scores)
    for query in set(queries.tolist()):
        of_query = ranks[queries == query]
        assert sorted(of_query.tolist()) == list(range(1, len(of_query) + 1))
        ordered = scores[queries == query][np.argsort(of_query)]
        finite = ordered[~np.isnan(ordered)]
        assert np.isnan(ordered[len(finite) :]).all()
        assert (finite[1:] <= finite[:-1]).all()
