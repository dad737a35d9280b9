"""The operation that a model runs on the inputs of a job."""

from __future__ import annotations

import pytest

from api.jobs.kinds import KINDS, PAIRS, TEXTS, VALUES, job_forms, kinds_of, op_of
from shared.messages import (
    CLASSIFIER_OPS,
    CLASSIFY,
    EMBED,
    EMBED_SPARSE,
    PREDICT,
    RERANKER_OPS,
    SCORE,
    SPARSE_OPS,
    TEXT_OPS,
)


@pytest.mark.parametrize(
    ("ops", "op", "kinds"),
    [
        (TEXT_OPS, EMBED, {TEXTS}),
        (SPARSE_OPS, EMBED_SPARSE, {TEXTS}),
        (CLASSIFIER_OPS, CLASSIFY, {TEXTS}),
        (RERANKER_OPS, EMBED, {PAIRS}),
        ((PREDICT,), EMBED, {VALUES}),
        ((), EMBED, set(KINDS)),
    ],
)
def test_what_a_model_does_with_texts(ops: tuple[str, ...], op: str, kinds: set[str]) -> None:
    """A reranker does nothing with texts that have no query, although it can classify them."""
    assert op_of(TEXTS, frozenset(ops)) == op
    assert kinds_of(frozenset(ops)) == kinds
    assert (op_of(PAIRS, frozenset(ops)), op_of(VALUES, frozenset(ops))) == (SCORE, PREDICT)


def test_an_error_says_how_to_send_a_job_to_a_reranker() -> None:
    """With pairs alone."""
    assert list(job_forms(frozenset(RERANKER_OPS))) == [SCORE]
