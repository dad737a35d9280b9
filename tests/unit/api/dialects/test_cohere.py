"""Cohere's dialect: any bytes give a request or a RequestError, and an answer has what cohere-python reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.cohere import CohereEmbed, CohereEmbedV1
from api.dialects.request import InferenceRequest, InferenceResult, Stamp
from api.settings import GatewaySettings
from shared.errors import QueueFullError, RequestError, TooLargeError
from shared.keys import BULK, INTERACTIVE
from shared.messages import Options
from tests.unit.api.dialects.test_native import jsonish, values
from tests.unit.api.dialects.test_vectors import result_of

LIMITS = GatewaySettings(max_inputs=8, max_input_chars=50).requests
DIALECT, V1 = CohereEmbed(), CohereEmbedV1()
NAMES = ("texts", "inputs", "model", "input_type", "embedding_types", "output_dimension", "truncate", "priority")

bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values))


def parse(**fields: object) -> InferenceRequest:
    """Returns the request in a body with these fields and a model."""
    return DIALECT.parse(json.dumps({"model": "minilm"} | fields).encode(), {}, LIMITS)


@given(st.sampled_from((DIALECT, V1)), jsonish | bodies.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_a_request_or_a_request_error(dialect: CohereEmbed, data: bytes) -> None:
    """An accepted request has texts."""
    try:
        request = dialect.parse(data, {}, LIMITS)
    except RequestError:
        return
    assert all(isinstance(each, str) and each for each in request.inputs)


def test_the_fields_of_a_request() -> None:
    """By default normalized float32 of texts that are cut at their end, for a client that waits."""
    assert parse(texts=["a", "b"]) == InferenceRequest(
        ("a", "b"), 10_100, INTERACTIVE, Options(normalize=True), model="minilm"
    )
    request = parse(
        inputs=[{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        input_type="search_query",
        embedding_types=["int8", "ubinary", "int8"],
        output_dimension=8,
        truncate="START",
        priority=5,
    )
    assert request.inputs == ("ab",)
    assert request.lane == BULK
    assert request.options == Options(normalize=True, dimensions=8, truncate="left")
    assert request.output_types == ("int8", "ubinary")
    assert request.input_type == "search_query"
    assert parse(texts=["a"], truncate="NONE").options.truncate == "no"
    options = parse(texts=["a"], max_tokens=9, instruction="Find animals.").options
    assert (options.max_tokens, options.instruction) == (9, "Find animals.")
    assert parse(texts=["a"], prompt_name="query").options.prompt_name == "query"
    assert parse(texts=["a"], task="retrieval.query").input_type == "retrieval.query"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 422, r'Send \{"texts": \["...", ...\]\}, or inputs'),
        ({"texts": []}, 422, "texts is empty"),
        ({"texts": ["a", ""]}, 422, r"texts\[1\] is empty"),
        ({"texts": ["a"], "images": ["data:,"]}, 422, "images: images are not embedded here"),
        ({"texts": ["a"], "max_tokens": 0}, 422, "max_tokens: "),
        ({"texts": ["a"], "embedding_types": []}, 422, "embedding_types: "),
        ({"texts": ["a"], "embedding_types": ["int4"]}, 422, r"embedding_types\[0\]: "),
        ({"texts": ["a"], "model": 7}, 422, "model: "),
        ({"texts": ["a"] * 9}, 400, "9 inputs are over the limit of 8"),
    ],
)
def test_what_is_wrong_with_a_body(fields: dict[str, Any], status: int, message: str) -> None:
    """A field that is missing or invalid is a 422, and what is too large a 400: Cohere's clients show the message."""
    with pytest.raises(RequestError, match=message) as caught:
        parse(**fields)
    found, body = DIALECT.encode_error(caught.value, "id-1")
    assert found == status
    assert json.loads(body) == {"id": "id-1", "message": caught.value.message}


def test_errors_have_the_status_of_their_cause() -> None:
    """Cohere's clients retry a 429 by its headers; what is too large is a 400."""
    assert DIALECT.encode_error(QueueFullError("The queue is full."), "id-1")[0] == 429
    assert DIALECT.encode_error(TooLargeError("Too many."), "id-1")[0] == 400


def test_an_answer_has_an_array_for_each_type() -> None:
    """Each as long as the texts, which it repeats; it says which of them were cut."""
    rows = [[0.5, -0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0], [0.0] * 7 + [1.0]]
    request = parse(texts=["a", "b"], embedding_types=["float", "binary", "int8"])._replace(stamp=Stamp("id-1", 0))
    result = result_of(*rows)._replace(tokens=5, truncated=[1])
    answer = json.loads(DIALECT.encode_result(request, result))
    assert answer == {
        "id": "id-1",
        "response_type": "embeddings_by_type",
        "embeddings": {
            "float": rows,
            "binary": [[0b10100000 - 128], [1 - 128]],
            "int8": [[45, -45, 45, -45, 0, 0, 0, 0], [0] * 7 + [90]],
        },
        "texts": ["a", "b"],
        "meta": {
            "api_version": {"version": "2", "is_experimental": False},
            "billed_units": {"input_tokens": 5},
            "warnings": ["Truncated to the maximum length: 1."],
        },
    }


def test_an_answer_without_truncated_texts_has_no_warnings() -> None:
    """Clients show warnings to users."""
    result: InferenceResult = result_of([1.0])
    assert "warnings" not in json.loads(DIALECT.encode_result(parse(texts=["a"]), result))["meta"]


@pytest.mark.parametrize(
    ("priority", "header", "lane"),
    [(None, None, INTERACTIVE), (0, "bulk", INTERACTIVE), (1, "interactive", BULK), (None, "bulk", BULK)],
)
def test_a_priority_above_0_is_bulk(priority: int | None, header: str | None, lane: int) -> None:
    """Without the field, the header X-Priority says the lane, as on all other routes."""
    body = {"model": "m", "texts": ["a"]} | ({} if priority is None else {"priority": priority})
    given = {} if header is None else {"x-priority": header}
    assert CohereEmbed().parse(json.dumps(body).encode(), given, LIMITS).lane == lane


def test_the_first_version_returns_floats_unless_the_body_names_types() -> None:
    """As cohere-python's union tells the two answers apart by `response_type`; the model is optional."""
    rows = [[0.5, -0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0]]

    def answer(body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
        request = V1.parse(json.dumps(body).encode(), {}, LIMITS)._replace(stamp=Stamp("id-1", 0))
        return json.loads(V1.encode_result(request, result_of(*rows)._replace(tokens=5)))

    meta = {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 5}}
    for body in ({"texts": ["a"]}, {"texts": ["a"], "embedding_types": None, "images": None, "model": "m"}):
        assert answer(body) == {
            "id": "id-1",
            "response_type": "embeddings_floats",
            "embeddings": rows,
            "texts": ["a"],
            "meta": meta,
        }
    named = answer({"texts": ["a"], "embedding_types": ["float", "ubinary"]})
    assert (named["response_type"], named["meta"]) == ("embeddings_by_type", meta)
    assert named["embeddings"] == {"float": rows, "ubinary": [[0b10100000]]}


def test_the_model_of_the_first_version() -> None:
    """The body goes before the header X-Model; with neither it is the default model."""
    for body, header, model in (({}, {}, None), ({}, {"x-model": "b"}, "b"), ({"model": "a"}, {"x-model": "b"}, "a")):
        assert V1.parse(json.dumps({"texts": ["a"]} | body).encode(), header, LIMITS).model == model
    request = V1.parse(b'{"texts": ["a"], "truncate": "NONE", "input_type": "search_query"}', {}, LIMITS)
    assert (request.options, request.input_type) == (Options(normalize=True, truncate="no"), "search_query")
