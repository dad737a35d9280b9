"""OpenAI's dialect: any bytes give a request or a RequestError, and an answer reads back bit for bit."""

from __future__ import annotations

import base64
import json
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.openai import OpenAI
from api.dialects.request import InferenceResult
from api.settings import GatewaySettings
from shared.codec import decode_body, decode_ids, encode_body, encode_ids
from shared.error_tree import error_tree
from shared.errors import InvalidRequestError, RedbatchError, RequestError
from shared.keys import BULK, INTERACTIVE
from shared.messages import EMBED, Body, Options, Vectors
from tests.unit.api.dialects.test_native import MARK, headers, jsonish, values

LIMITS = GatewaySettings(max_inputs=8, max_input_chars=50).requests
DIALECT = OpenAI()
NAMES = ("input", "model", "encoding_format", "dimensions", "prompt_name", "normalize", "truncate", "timeout_ms")

bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values))
token_ids = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=12)


def body(**fields: object) -> bytes:
    """Returns a body with these fields, a model and an input."""
    return json.dumps({"model": "minilm", "input": "a"} | fields).encode()


def fault(**fields: object) -> RequestError:
    """Returns the error of a body with these fields."""
    with pytest.raises(RequestError) as caught:
        DIALECT.parse(body(**fields), {}, LIMITS)
    return caught.value


@given(jsonish | bodies.map(lambda value: json.dumps(value).encode()), headers, headers)
def test_any_bytes_give_a_request_or_a_request_error(data: bytes, timeout: str | None, priority: str | None) -> None:
    """Any bytes raise only RequestError, and an accepted request passes through the codec unchanged."""
    given = {"x-timeout-ms": timeout, "x-priority": priority}
    try:
        request = DIALECT.parse(data, {name: value for name, value in given.items() if value is not None}, LIMITS)
    except RequestError:
        return
    assert 1 <= len(request.inputs) <= LIMITS.max_inputs
    assert request.lane in (INTERACTIVE, BULK)
    try:
        encoded = encode_body(Body(EMBED, request.inputs, request.options))
    except UnicodeEncodeError:  # a lone surrogate, which the dispatcher reports
        return
    assert decode_body(encoded) == Body(EMBED, request.inputs, request.options)


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([101, 7, 102], (encode_ids([101, 7, 102]),)),
        ([[101, 102], [7]], (encode_ids([101, 102]), encode_ids([7]))),
    ],
)
def test_an_input_has_four_forms(given: object, inputs: tuple[object, ...]) -> None:
    """An input is a text or a list of token ids, alone or in a list."""
    assert DIALECT.parse(body(input=given), {}, LIMITS).inputs == inputs


@given(token_ids)
def test_token_ids_are_unchanged(ids: list[int]) -> None:
    """Any list of uint32 token ids is decoded to the same list."""
    [given] = DIALECT.parse(body(input=ids), {}, LIMITS).inputs
    assert isinstance(given, bytes)
    assert decode_ids(given) == ids


@pytest.mark.parametrize(
    "given",
    [
        *("", [], [""], ["a", ""], [[]], [[1], []], None, 1, True, {"a": 1}, 1.5),
        *(["a", 1], [1, "a"], [1, [2]], ["a", None], [True], [1.0], [-1], [2**32], [[2**32]], [[[1]]]),
    ],
    ids=str,
)
def test_an_invalid_input_names_the_field(given: object) -> None:
    """An empty text is refused, and so are numbers that are not token ids; the error names `input`."""
    error = fault(input=given)
    assert isinstance(error, InvalidRequestError)
    assert error.param == "input"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model", value) for value in (None, 1, ["minilm"])),
        *(("encoding_format", value) for value in ("hex", 1)),
        *(("dimensions", value) for value in (0, -1, "8", 1.5, True, 65_537)),
        *(("normalize", value) for value in ("yes", 1)),
        ("truncation_direction", "up"),
        ("prompt_name", "x" * 257),
        ("timeout_ms", 0),
        ("priority", "now"),
        ("user", 1),
    ],
)
def test_a_field_with_a_wrong_value_is_named(name: str, value: object) -> None:
    """An invalid value is a 400 whose error names the field."""
    error = fault(**{name: value})
    assert error.param == name
    assert status_of_error(error) == 400


def test_the_header_names_the_model_that_the_body_does_not() -> None:
    """X-Model stands for the field, which takes precedence."""
    headers = {"x-model": "other"}
    assert DIALECT.parse(b'{"input": "a"}', headers, LIMITS).model == "other"
    assert DIALECT.parse(b'{"input": "a", "model": "m"}', headers, LIMITS).model == "m"


def status_of_error(error: RedbatchError) -> int:
    """Returns the status of an answer with an error."""
    return DIALECT.encode_error(error, "r")[0]


@pytest.mark.parametrize("part", [b"[1],", b"{},", b'{"a":1},', b'"","",', b'"", "", ', b"17,"])
def test_a_body_of_a_million_parts_is_not_parsed(part: bytes) -> None:
    """It is refused with 400, as all with too many inputs: to parse it would take seconds and a gigabyte."""
    with pytest.raises(InvalidRequestError, match="too many"):
        DIALECT.parse(b'{"model": "m", "input": [' + part * 1_000_000 + b"1]}", {}, LIMITS)
    fields = b",".join(b'"%d":1' % i for i in range(600_000))
    with pytest.raises(InvalidRequestError, match="too many"):
        DIALECT.parse(b'{"model": "m", "input": "a", ' + fields + b"}", {}, LIMITS)


def test_texts_may_be_json_themselves() -> None:
    """JSON within a text does not count as parts of the body."""
    text = json.dumps([{f"key {i}": "value"} for i in range(40_000)])
    request = DIALECT.parse(body(input=[text] * 8), {}, GatewaySettings(max_input_chars=10**7).requests)
    assert request.inputs == (text,) * 8


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("input", "model")])
def test_null_counts_as_missing(name: str) -> None:
    """A null field is parsed as a missing one: client wrappers send null for what their users leave out."""
    assert DIALECT.parse(body(**{name: None}), {}, LIMITS) == DIALECT.parse(body(), {}, LIMITS)


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"null", b'"a"', b"{", b'{"input": NaN}', b'{"input": "\\ud800"}'])
def test_a_body_that_is_not_an_object_is_refused(data: bytes) -> None:
    """A body that is not a JSON object is refused, also NaN and lone surrogates, which Python's parser accepts."""
    with pytest.raises(InvalidRequestError):
        DIALECT.parse(data, {}, LIMITS)


def test_a_missing_model_is_named() -> None:
    """A body without a model is refused: OpenAI's clients always send one."""
    with pytest.raises(InvalidRequestError) as caught:
        DIALECT.parse(b'{"input": "a"}', {}, LIMITS)
    assert caught.value.param == "model"


@pytest.mark.parametrize("name", ["inputs", "text", "texts"])
def test_a_field_of_another_route_in_place_of_the_input_is_named(name: str) -> None:
    """Other unknown fields are ignored; without an input the message says which route takes this field."""
    with pytest.raises(InvalidRequestError, match=f"^input: .*; POST /embed takes {name}\\.$") as caught:
        DIALECT.parse(json.dumps({"model": "minilm", name: "a"}).encode(), {}, LIMITS)
    assert caught.value.param == "input"


def test_limits_are_those_of_the_gateway() -> None:
    """Too many inputs are a 400 that names `input`, as OpenAI answers; one that is too long is a 413."""
    for too_many in cast("list[list[object]]", [["a"] * 9, [[1]] * 9, [None] * 9, [[]] * 9]):
        for fields in ({}, {"on_error": "null"}):
            error = fault(input=too_many, **fields)
            assert (status_of_error(error), error.param) == (400, "input")
            assert "9 inputs are over the limit of 8" in error.message
    for too_long in cast("list[object]", ["x" * 51, [1] * 51, [[1] * 51]]):
        assert status_of_error(fault(input=too_long)) == 413
    for at_limit in (["a"] * 8, "x" * 50, [1] * 50, [[1] * 50] * 8):
        assert DIALECT.parse(body(input=at_limit), {}, LIMITS).inputs


@pytest.mark.parametrize("text", [MARK * 20, {MARK: MARK}, [MARK, 1], [[MARK]]])
def test_errors_do_not_repeat_the_text(text: object) -> None:
    """An error message holds nothing of the input, which may be private."""
    assert MARK not in fault(input=text).message


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, Options(normalize=True)),
        ({"normalize": False}, Options(normalize=False)),
        ({"dimensions": 64, "prompt_name": "query"}, Options("query", normalize=True, dimensions=64)),
        ({"truncate": False, "truncation_direction": "left"}, Options(normalize=True, truncate="no")),
        ({"truncation_direction": "left"}, Options(normalize=True, truncate="left")),
        ({"truncation_side": "left"}, Options(normalize=True, truncate="left")),
        ({"truncate_prompt_tokens": 9}, Options(normalize=True, max_tokens=9)),
        ({"truncate_prompt_tokens": -1, "truncation_side": None}, Options(normalize=True)),
        ({"truncation": False}, Options(normalize=True, truncate="no")),
        ({"truncation": True, "truncate": True}, Options(normalize=True)),
        ({"normalized": False}, Options(normalize=False)),
        ({"use_activation": False, "normalized": None}, Options(normalize=False)),
        ({"output_dimension": 64}, Options(normalize=True, dimensions=64)),
    ],
)
def test_options_are_passed_on(fields: dict[str, Any], options: Options) -> None:
    """Options reach the request; by default vectors are normalized."""
    assert DIALECT.parse(body(**fields), {}, LIMITS).options == options


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [
        ("late_chunking", True, False),
        ("return_multivector", True, False),
        ("add_special_tokens", False, True),
        ("embed_dtype", "float16", "float32"),
        ("endianness", "big", "native"),
    ],
)
def test_what_would_give_other_vectors_is_not_ignored(name: str, value: object, harmless: object) -> None:
    """A 400 names the field of Jina's or vLLM's that is not served; the value that is the default is accepted."""
    error = fault(**{name: value})
    assert (error.param, status_of_error(error)) == (name, 400)
    assert error.message.startswith(f"{name}: ")
    assert DIALECT.parse(body(**{name: harmless}), {}, LIMITS) == DIALECT.parse(body(), {}, LIMITS)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"truncate": True, "truncation": False}, "truncation"),
        ({"truncation_side": "left", "truncation_direction": "right"}, "truncation_direction"),
        ({"normalize": True, "normalized": False}, "normalized"),
        ({"normalized": True, "use_activation": False}, "use_activation"),
        ({"input_type": "query", "task": "retrieval.passage"}, "task"),
        ({"dimensions": 8, "output_dimension": 16}, "output_dimension"),
        ({"output_dtype": "int8", "embedding_type": "float"}, "embedding_type"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], name: str) -> None:
    """One of them would be dropped. With the same value both may be there, as one may be null."""
    first = next(iter(fields))
    assert fault(**fields).message == f"{name}: it contradicts {first}: send one of them."
    alone = DIALECT.parse(body(**{first: fields[first]}), {}, LIMITS)
    for other in (fields[first], None):
        assert DIALECT.parse(body(**fields | {name: other}), {}, LIMITS) == alone


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation_side": "left", "truncation_direction": "Left"},
        {"input_type": "query", "task": "retrieval.query"},
        {"output_dtype": "int8", "embedding_type": ["int8"]},
    ],
)
def test_two_words_for_one_thing_do_not_contradict_each_other(fields: dict[str, Any]) -> None:
    """As names of purposes, and a list of one."""
    first = next(iter(fields))
    assert DIALECT.parse(body(**fields), {}, LIMITS) == DIALECT.parse(body(**{first: fields[first]}), {}, LIMITS)


@pytest.mark.parametrize(("priority", "lane"), [(-5, INTERACTIVE), (0, INTERACTIVE), (1, BULK), ("bulk", BULK)])
def test_a_lower_priority_is_sooner(priority: object, lane: int) -> None:
    """As in vLLM; names are Redbatch's own."""
    assert DIALECT.parse(body(priority=priority), {}, LIMITS).lane == lane


def test_an_object_with_a_text_stands_for_the_text() -> None:
    """Jina's clients send such objects, also among texts. Images are refused, and so are other objects."""
    assert DIALECT.parse(body(input=[{"text": "a"}, "b"]), {}, LIMITS).inputs == ("a", "b")
    error = fault(input=["a", {"image": MARK}])
    assert (error.message, error.param) == ("input[1].image: images are not embedded here: send texts.", "input")
    for other in ({"text": 5}, {"text": "a", "title": "b"}, {}):
        assert fault(input=["a", other]).message == "input[1] is neither a text nor a list of token ids."


def result_of(*rows: list[float], per_entry: int = 2) -> InferenceResult:
    """Returns a result with these vectors."""
    parts = [rows[start : start + per_entry] for start in range(0, len(rows), per_entry)]
    data = [np.asarray(part, dtype="<f4").tobytes() for part in parts]
    entries = (Vectors("r", i * per_entry, len(p), len(rows[0]), data[i]) for i, p in enumerate(parts))
    return InferenceResult(tuple(entries), 1.0, 2.0, 3, 17)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_an_answer_has_all_fields_of_the_contract(form: str) -> None:
    """In both formats the answer has all fields, and the numbers are the model's, bit for bit and in order."""
    rows = [[0.1, -1 / 3], [1e-45, 2.0], [3.4e38, -0.0]]
    request = DIALECT.parse(body(input=["a", "b", "c"], encoding_format=form, model="minilm"), {}, LIMITS)
    answer = json.loads(DIALECT.encode_result(request, result_of(*rows)))
    assert {name: answer[name] for name in answer if name != "data"} == {
        "object": "list",
        "model": "minilm",
        "usage": {"prompt_tokens": 17, "total_tokens": 17},
    }
    assert [(each["object"], each["index"]) for each in answer["data"]] == [("embedding", i) for i in range(3)]
    for each, row in zip(answer["data"], rows, strict=True):
        vector = each["embedding"]
        data = base64.b64decode(vector) if form == "base64" else np.asarray(vector, dtype="<f4").tobytes()
        assert data == np.asarray(row, dtype="<f4").tobytes()


@pytest.mark.parametrize("kind", error_tree(), ids=lambda kind: kind.__name__)
def test_every_error_has_all_four_keys(kind: type[RedbatchError]) -> None:
    """Every error has all four keys, which clients read unchecked; the code is a string; the id is in a header."""
    status, answer = DIALECT.encode_error(kind("It is so."), "r-1")
    error = json.loads(answer)["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (error["message"], error["param"], error["code"]) == ("It is so.", None, kind.code)
    expected = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    assert error["type"] == expected


NO_ID = "in a list of token ids, each is a whole number from 0 to 4294967295."


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["a", "", None], "input[1] is empty."),
        ([[1], []], "input[1] is empty."),
        ([[]], "input[0] is empty."),
        (["a", "b", 5], "input[2] is neither a text nor a list of token ids."),
        ([None], "input[0] is neither a text nor a list of token ids."),
        ([True], "input[0] is neither a text nor a list of token ids."),
        ([[1], [-1]], f"input[1][0]: {NO_ID}"),
        ([[1, "a"]], f"input[0][1]: {NO_ID}"),
        ([["a", 1]], f"input[0][0]: {NO_ID}"),
        ([[1, [2]]], f"input[0][1]: {NO_ID}"),
        ([-1], f"input[0]: {NO_ID}"),
        ([1, "a"], f"input[1]: {NO_ID}"),
        ([1, 2, True], f"input[2]: {NO_ID}"),
        ([1, 2**32, -1], f"input[1]: {NO_ID}"),
    ],
)
def test_an_invalid_element_is_named(inputs: list[object], message: str) -> None:
    """By its index, as on /embed, with what is expected there; also if it is the only one."""
    error = fault(input=inputs)
    assert (error.message, error.param) == (message, "input")
    if "" not in inputs:
        assert fault(input=inputs, on_error="null").message == message


def test_with_null_for_errors_an_empty_text_is_a_fault_only_alone() -> None:
    """Among others it has no result; alone there would be no result at all."""
    assert fault(input=["", "a", []], on_error="null").message == "input[2] is empty."
    assert fault(input=[""], on_error="null").message == "input[0] is empty."


@pytest.mark.parametrize("inputs", ["", [], None, 5, {}, {"a": 1}])
def test_another_invalid_field_gets_what_it_takes(inputs: object) -> None:
    """There is no index to name."""
    for partial in ("fail", "null"):
        assert "send a text, a list of texts, a list of token ids" in fault(input=inputs, on_error=partial).message


def test_chunks_have_all_of_a_text() -> None:
    """So a maximum of its tokens does not go with them."""
    error = fault(truncate_prompt_tokens=9, long_text="chunks")
    assert (error.param, "leave it or long_text out" in error.message) == ("truncate_prompt_tokens", True)
