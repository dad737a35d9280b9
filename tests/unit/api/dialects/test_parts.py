"""The field `return` of Redbatch's own routes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from api.dialects.job_options import parse_job_options
from api.dialects.native import EmbedBody, Native, NativeBatch
from api.dialects.parts import parts_of_ops
from api.dialects.request import InferenceRequest, InferenceResult
from api.settings import GatewaySettings
from gpuworker.model_type import ModelType
from shared.errors import InvalidRequestError
from shared.messages import (
    DEFAULT_OPTIONS,
    DENSE,
    EMBED,
    EMBED_PARTS,
    EMBED_SPARSE,
    MULTI_VECTOR,
    PARTS,
    SPARSE,
    Failure,
    Options,
    Reply,
    Values,
    Vectors,
)
from shared.parts import Parts, encode_parts

LIMITS = GatewaySettings().requests
WEIGHTS = b'[{"index":7,"value":0.5}]'


def parse(**fields: Any) -> InferenceRequest:  # noqa: ANN401 - JSON
    """Parses a body of two texts."""
    return Native().parse(json.dumps({"texts": ["a", "b"], **fields}).encode(), {}, LIMITS)


def answer(request: InferenceRequest, *replies: Reply) -> Any:  # noqa: ANN401 - JSON
    """Returns the answer."""
    return json.loads(Native().encode_result(request, InferenceResult(replies)))


def test_a_single_part_is_the_output_of_its_operation() -> None:
    """So that it is cached as on other routes, and any model that offers the operation has it."""
    dense, sparse = parse(**{"return": [DENSE]}), parse(**{"return": [SPARSE, SPARSE]})
    assert (dense.op, dense.parts, dense.options) == (EMBED, (DENSE,), DEFAULT_OPTIONS)
    assert (sparse.op, sparse.parts, sparse.options) == (EMBED_SPARSE, (SPARSE,), DEFAULT_OPTIONS)
    vectors = np.array([[1, 2], [3, 4]], dtype="<f4").tobytes()
    assert answer(dense, Vectors("", 0, 2, 2, vectors)) == {"embeddings": [{"dense": [1, 2]}, {"dense": [3, 4]}]}
    weights = [{"index": 7, "value": 0.5}]
    assert answer(sparse, Values("", 0, 2, (WEIGHTS, b"[]"))) == {"embeddings": [{"sparse": weights}, {"sparse": []}]}


@pytest.mark.parametrize("named", [[MULTI_VECTOR], [SPARSE, DENSE], list(PARTS)])
def test_several_parts_are_options_of_their_operation(named: list[str]) -> None:
    """Each entry names them; vectors of tokens alone are no /embed_all, which any model of embeddings has."""
    request = parse(**{"return": named, "normalize": True})
    assert (request.op, request.options) == (EMBED_PARTS, Options(normalize=True, parts=tuple(named)))


def test_an_answer_has_an_object_for_each_text() -> None:
    """Whose vectors are in the number format of the request; a text that fails has null."""
    tokens = np.array([[1, 0], [-1, 1], [0, 0]], dtype="<f4")
    full = encode_parts(Parts(tokens[1].tobytes(), WEIGHTS, tokens.tobytes(), 2))
    fields: dict[str, Any] = {"return": list(PARTS), "on_error": "null"}
    replies = (Values("", 0, 1, (full,)), Failure("", 1, 1, "input_failed", "bad"))
    found = answer(parse(**fields), *replies)
    assert found["embeddings"] == [
        {"dense": [-1, 1], "sparse": [{"index": 7, "value": 0.5}], "multi_vector": tokens.tolist()},
        None,
    ]
    assert [each["index"] for each in found["errors"]] == [1]
    halves = answer(parse(**fields, output_dtype="base64"), *replies)["embeddings"][0]
    assert (len(halves["dense"]), [len(each) for each in halves["multi_vector"]]) == (12, [12, 12, 12])
    single = Native().parse(json.dumps({"text": "a", "return": list(PARTS)}).encode(), {}, LIMITS)
    assert set(answer(single, replies[0])["embedding"]) == set(PARTS)


def test_ranges_of_int8_are_for_the_dense_part() -> None:
    """Vectors of tokens have other dimensions: theirs are in the range of all models."""
    ranges = np.array([[0, 0], [1, 2]], dtype="<f4").tobytes()
    dense = np.array([2, 0], dtype="<f4").tobytes()
    alone, both = (
        parse(**{"return": named, "output_dtype": "uint8"})._replace(int8_ranges=ranges)
        for named in ([DENSE], [DENSE, MULTI_VECTOR])
    )
    assert answer(alone, Vectors("", 0, 1, 2, dense))["embeddings"] == [{"dense": [255, 0]}]
    value = encode_parts(Parts(dense, None, dense, 2))
    [found] = answer(both, Values("", 0, 1, (value,)))["embeddings"]
    assert found == {"dense": [255, 0], "multi_vector": [[128 + 90, 128]]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"return": []}, "return: "),
        ({"return": "dense"}, "return: "),
        ({"return": ["colbert"]}, "return[0]: send dense, sparse or multi_vector."),
        ({"returns": ["dense"]}, "returns: there is no such field; did you mean return?"),
        ({"parts": ["dense"]}, "parts: there is no such field"),
        ({"return": ["sparse"], "long_text": "chunks"}, "long_text: "),
    ],
)
def test_what_is_refused(fields: dict[str, Any], message: str) -> None:
    """The error names the field as clients do."""
    for dialect in (Native(), NativeBatch()):
        with pytest.raises(InvalidRequestError) as caught:
            dialect.parse(json.dumps({"texts": ["a"], **fields}).encode(), {}, LIMITS)
        assert caught.value.message.startswith(message)


def test_a_job_knows_the_field() -> None:
    """It is refused by the queue, with the reason, and not as unknown."""
    parse_job_options(b'{"text": "a", "return": ["dense"]}', {}, EmbedBody)


def test_the_parts_of_a_model() -> None:
    """As the gateway knows them, by the operations that workers report."""
    for model_type, parts in (
        (ModelType("embedding"), [DENSE]),
        (ModelType("sparse"), [SPARSE]),
        (ModelType("multi-vector"), [MULTI_VECTOR]),
        (ModelType("hybrid", parts=PARTS), list(PARTS)),
        (ModelType("reranker"), []),
    ):
        assert parts_of_ops(model_type.ops) == parts
