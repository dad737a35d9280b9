"""Scores of pairs by a model of embeddings: which texts are embedded, and which pair gets which cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.dialects.ranking import scores_of
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.cosines import cosines_of
from shared.errors import InvalidRequestError
from shared.messages import CLASSIFIER_OPS, EMBED, RERANKER_OPS, SCORE, TEXT_OPS, Input, Options, Vectors


def pairs_of(
    inputs: tuple[Input, ...], query: str | None = None, queries: tuple[str | None, ...] = ()
) -> InferenceRequest:
    """Returns a request for the scores of pairs."""
    return InferenceRequest(inputs, 1_000, options=Options(truncate="left", query=query), op=SCORE, queries=queries)


@pytest.mark.parametrize("ops", [RERANKER_OPS, CLASSIFIER_OPS, (), ("predict",)])
def test_other_models_embed_nothing(ops: tuple[str, ...]) -> None:
    """A reranker scores pairs itself; the others are refused elsewhere."""
    assert cosines_of(pairs_of(("a",), "q"), ops) is None
    assert cosines_of(InferenceRequest(("a",), 1_000), TEXT_OPS) is None


def test_each_text_is_embedded_once() -> None:
    """With the options of the pairs, normalized; an error names a text by the first pair that it is in."""
    cosines = cosines_of(pairs_of(("a", "b", "q", "a"), "q"), TEXT_OPS)
    assert cosines is not None
    request = cosines.request
    assert (request.op, request.inputs) == (EMBED, ("q", "a", "b"))
    assert request.options == Options(truncate="left", normalize=True)
    assert request.indices == [0, 0, 1]
    assert cosines.pairs == ((0, 1), (0, 2), (0, 0), (0, 1))


@pytest.mark.parametrize("option", [{"instruction": "i"}, {"max_query_tokens": 1}, {"max_document_tokens": 1}])
def test_an_option_of_one_text_of_a_pair_is_refused(option: dict[str, Any]) -> None:
    """All texts are embedded alike; but each may be cut to as many tokens."""
    request = pairs_of(("a",), "q")
    with pytest.raises(InvalidRequestError, match="embeddings of all texts alike"):
        cosines_of(request._replace(options=request.options._replace(**option)), TEXT_OPS)
    cut = cosines_of(request._replace(options=request.options._replace(max_tokens=9)), TEXT_OPS)
    assert cut is not None
    assert cut.request.options.max_tokens == 9


def test_each_pair_has_its_cosine() -> None:
    """In the order of the pairs, from replies to several entries; a pair is truncated if one of its texts is."""
    cosines = cosines_of(pairs_of(("b", "c", "a"), queries=("a", "b", "a")), TEXT_OPS)
    assert cosines is not None
    assert cosines.request.inputs == ("a", "b", "c")
    vectors = np.asarray([[1, 0], [0.6, 0.8], [0, 1]], dtype="<f4")
    parts = [Vectors("", 0, 2, 2, vectors[:2].tobytes()), Vectors("", 2, 1, 2, vectors[2:].tobytes())]
    scored = cosines.score(InferenceResult(parts, tokens=9, truncated=[2]))
    assert scores_of(scored, raw=True).tolist() == pytest.approx([0.6, 0.8, 1.0], abs=1e-6)
    assert (scored.tokens, scored.truncated) == (9, [1])
