"""Redbatch's own dialect: any bytes give a request or a RequestError, which never repeats the client's text."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from api.dialects.native import PLAIN_BYTES, TEI, EmbedBody, Native, NativeBatch, read_plain
from api.dialects.openai import OpenAI
from api.dialects.request import MAX_TIMEOUT_MS, InferenceRequest, InferenceResult
from api.settings import GatewaySettings
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.keys import BULK, INTERACTIVE
from shared.messages import Failure, Options, Reply, Vectors

LIMITS = GatewaySettings(max_inputs=8, max_input_chars=50).requests
MARK = "zqxjv"

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)
bodies = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("text", "texts", "timeout_ms", "dimensions", "truncate", "other"), values)
)
jsonish = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    bodies.map(lambda value: json.dumps(value).encode()),
    bodies.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.tuples(bodies, st.integers(0, 60)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]]),
)
headers = st.none() | st.text(max_size=12) | st.integers(-1, 10**7).map(str)


def parse(body: object, **headers: str | None) -> InferenceRequest:
    """Parses a body from a value, with headers: `x_priority` is the header X-Priority."""
    return Native().parse(json.dumps(body).encode(), named(headers), LIMITS)


def named(headers: dict[str, str | None]) -> dict[str, str]:
    """Returns headers by their HTTP names."""
    return {name.replace("_", "-"): value for name, value in headers.items() if value is not None}


plain = st.fixed_dictionaries({}, optional={"text": values, "texts": st.lists(st.text(max_size=60)) | values})
plain_bodies = st.one_of(
    jsonish,
    plain.map(lambda value: json.dumps(value).encode()),
    plain.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=20).map(lambda text: b'{"text": "%b"}' % text),
)


@given(st.sampled_from([Native(), NativeBatch()]), plain_bodies, headers, headers, headers)
@example(Native(), b'{"text": "one", "text": "two"}', None, None, None)
@example(Native(), b'{"te\\u0078t": "\\ud800"}', None, None, None)
@example(Native(), b'{"texts": ["one", null]}', None, None, None)
@example(NativeBatch(), b'{"text": "one"}', None, None, "minilm")
def test_a_plain_body_is_read_as_any_other(
    dialect: Native, body: bytes, timeout: str | None, priority: str | None, model: str | None
) -> None:
    """A body of texts alone gives the same request, or the same error, as one that all checks have read."""
    sent = named({"x_timeout_ms": timeout, "x_priority": priority, "x_model": model})

    def read() -> InferenceRequest | tuple[type[RequestError], str, str | None]:
        try:
            return dialect.parse(body, sent, LIMITS)
        except RequestError as error:
            return type(error), error.message, error.param

    with patch("api.dialects.native.read_plain", return_value=None):
        expected = read()
    assert read() == expected


def test_a_large_body_is_not_tried() -> None:
    """One that is not plain would be read twice."""
    body = json.dumps({"text": PLAIN_BYTES * "a"}).encode()
    assert read_plain(body) is None
    assert read_plain(body[:10] + body[-2:]) is not None


@given(jsonish, headers, headers)
def test_any_bytes_give_a_request_or_a_request_error(body: bytes, timeout: str | None, priority: str | None) -> None:
    """Any bytes raise only RequestError, and an accepted request is within the limits."""
    try:
        request = Native().parse(body, named({"x_timeout_ms": timeout, "x_priority": priority}), LIMITS)
    except RequestError:
        return
    assert 1 <= len(request.inputs) <= LIMITS.max_inputs
    assert all(1 <= len(text) <= LIMITS.max_input_chars for text in request.inputs)
    assert 1 <= request.timeout_ms <= MAX_TIMEOUT_MS
    assert request.lane in (INTERACTIVE, BULK)


def test_validation_stops_at_the_first_error() -> None:
    """A list of wrong items gives one error: errors for a million items would take seconds and a gigabyte."""
    with pytest.raises(ValidationError) as caught:
        EmbedBody.model_validate_json(json.dumps({"texts": [1] * 1_000}))
    assert caught.value.error_count() == 1


@given(st.data())
def test_no_message_repeats_what_the_client_sent(data: st.DataObject) -> None:
    """An error message holds no text of the client, wherever the text is in an invalid body.

    The name of an unknown field is a text as well, unless it looks like one of a field.
    """
    marked = st.sampled_from([MARK, MARK * 20, [MARK], {MARK: MARK}, [[MARK]], [MARK, 1], [MARK, ""]])
    body = data.draw(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("text", "texts", "timeout_ms", "priority", "prompt_name", f"{MARK} {MARK}"), marked
            ),
        )
    )
    text = json.dumps(body)
    cut = data.draw(st.integers(0, len(text)))
    message = ""
    try:
        marks = {name: data.draw(st.sampled_from([None, MARK])) for name in ("x_timeout_ms", "x_priority")}
        Native().parse(text[:cut].encode(), named(marks), LIMITS)
    except RequestError as error:
        message = error.message
    assert MARK not in message


@pytest.mark.parametrize(
    ("body", "inputs", "single"),
    [
        ({"text": "a"}, ("a",), True),
        ({"text": "a", "texts": None}, ("a",), True),
        ({"texts": ["a"]}, ("a",), False),
        ({"texts": ["b", "a"], "text": None, "model": "x", "truncate": None}, ("b", "a"), False),
        ({"text": "\0"}, ("\0",), True),
        ({"text": "😀 é"}, ("😀 é",), True),
    ],
)
def test_one_text_or_many(body: dict[str, Any], inputs: tuple[str, ...], single: bool) -> None:
    """A null field counts as missing, and any character is allowed in a text."""
    request = parse(body)
    assert (request.inputs, request.single, request.options) == (inputs, single, Options())


OPTIONS: list[tuple[dict[str, Any], Options]] = [
    ({}, Options()),
    ({"prompt_name": "query"}, Options("query")),
    ({"task": "query"}, Options()),
    ({"normalize": False}, Options(normalize=False)),
    ({"dimensions": 8}, Options(dimensions=8)),
    ({"truncate": True, "truncation_direction": "left"}, Options(truncate="left")),
    ({"truncate": False, "truncation_direction": "left"}, Options(truncate="no")),
    ({"truncate": None, "truncation_direction": None, "normalize": None}, Options()),
]


@pytest.mark.parametrize(("fields", "options"), OPTIONS, ids=str)
@pytest.mark.parametrize("dialect", [Native(), NativeBatch()])
def test_options_of_texts_are_those_of_the_other_apis(
    dialect: Native, fields: dict[str, Any], options: Options
) -> None:
    """/embed and /batch_embed take the options by the names that they have in OpenAI's and TEI's bodies."""
    body = json.dumps({"texts": ["a"], **fields}).encode()
    assert dialect.parse(body, {}, LIMITS).options == options
    if None not in fields.values():  # there, the default of `normalize` is true, and null is no value
        tei = TEI.parse(json.dumps({"inputs": ["a"], "normalize": None, **fields}).encode(), {}, LIMITS).options
        openai = json.dumps({"input": ["a"], "model": "m", **fields}).encode()
        assert OpenAI().parse(openai, {}, LIMITS).options == tei
        assert tei == (options if options.normalize is not None else options._replace(normalize=True))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "query"}, "^prompt: there is no such field; did you mean prompt_name\\?$"),
        ({"normalise": True}, "^normalise: .*did you mean normalize"),
        ({"dimension": 8}, "^dimension: .*did you mean dimensions"),
        ({"timeout": 8}, "^timeout: .*did you mean timeout_ms"),
        ({"input": "b"}, "^input: there is no such field; the fields are .*texts.*; POST /v1/embeddings takes input"),
        ({"inputs": ["b"]}, "^inputs: there is no such field; the fields are .*texts.*; POST /embed takes inputs"),
        ({"a secret of mine": 1}, "^body: there is no such field; the fields are"),
        ({"x" * 65: 1}, "^body: there is no such field"),
        ({"model_config": 1}, "^model_config: there is no such field"),
    ],
)
@pytest.mark.parametrize("dialect", [Native(), NativeBatch()])
def test_an_unknown_field_is_refused(dialect: Native, fields: dict[str, Any], message: str) -> None:
    """The message names the field and the nearest one; it does not repeat what cannot be the name of a field."""
    with pytest.raises(InvalidRequestError, match=message):
        dialect.parse(json.dumps({"texts": ["a"], **fields}).encode(), {}, LIMITS)


def test_unknown_fields_are_no_validation_errors() -> None:
    """A thousand unknown fields are one error of the dialect: each error of the validation would take memory."""
    body = json.dumps({"text": "a"} | {f"field_{i}": i for i in range(1_000)})
    assert len(EmbedBody.model_validate_json(body).model_extra or ()) == 1_000
    with pytest.raises(InvalidRequestError, match=r"^field_0: there is no such field"):
        Native().parse(body.encode(), {}, LIMITS)


@pytest.mark.parametrize(
    "fields",
    [{"dimensions": 0}, {"dimensions": "8"}, {"truncate": "no"}, {"truncation_direction": "up"}, {"prompt_name": 1}],
)
def test_a_wrong_value_of_an_option_is_refused(fields: dict[str, Any]) -> None:
    """The message names the option."""
    with pytest.raises(InvalidRequestError, match=f"^{next(iter(fields))}: "):
        parse({"text": "a"} | fields)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "either"),
        ({"text": None}, "either"),
        ({"text": "a", "texts": ["a"]}, "either"),
        ({"texts": []}, "texts is empty"),
        ({"text": ""}, "text is empty"),
        ({"texts": ["a", "b", ""]}, r"texts\[2\] is empty"),
        ({"text": 1}, "^text: send a text"),
        ({"text": ["a"]}, "^text: send a text"),
        ({"texts": "a"}, "^texts: send a list"),
        ({"texts": {"0": "a"}}, r"^texts: "),
        ({"texts": ["a", None]}, r"^texts\[1\]: send a text"),
        ([], r"^body: .*Send "),
        ("a", r"^body: .*Send "),
        (None, r"^body: .*Send "),
    ],
)
def test_a_body_without_inputs_is_refused_with_a_helpful_message(body: object, message: str) -> None:
    """The message names the field and says what to send."""
    with pytest.raises(InvalidRequestError, match=message):
        parse(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"text": "a"',
        b'{"text": "a"} x',
        b'{"text": NaN}',
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xed\xa0\x80"}',
        b'{"text": "a\nb"}',
        b"[" * 100_000,
        b'{"text": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"x": ' + b'{"x": ' * 5_000,
        b'{"timeout_ms": ' + b"9" * 5_000 + b', "text": "a"}',
    ],
)
def test_malformed_json_is_refused(body: bytes) -> None:
    """JSON is refused if it is truncated, nested too deeply, not UTF-8, or has escapes of no character."""
    with pytest.raises(InvalidRequestError):
        Native().parse(body, {}, LIMITS)


def test_too_many_or_too_long_inputs_are_refused() -> None:
    """A request at the limit is accepted; over it, the message names the limit and its setting."""
    assert len(parse({"texts": ["a"] * 8}).inputs) == 8
    assert len(parse({"text": "é" * 50}).inputs[0]) == 50
    with pytest.raises(TooLargeError, match=r"9 inputs are over the limit of 8: .*max_inputs"):
        parse({"texts": ["a"] * 9})
    with pytest.raises(TooLargeError, match=r"Input 1 has 51 characters, over the limit of 50: .*max_input_chars"):
        parse({"texts": ["a", "b" * 51]})


@pytest.mark.parametrize(
    ("field", "header", "timeout_ms"),
    [(None, None, 10_100), (None, "1", 1), (None, "300000", 300_000), (7, "9", 7), (300_000, None, 300_000)],
)
def test_the_timeout_comes_from_the_body_the_header_or_the_number_of_inputs(
    field: int | None, header: str | None, timeout_ms: int
) -> None:
    """The body takes precedence over the header; without both, the timeout is 10 s and 50 ms for each input."""
    assert parse({"texts": ["a", "b"], "timeout_ms": field}, x_timeout_ms=header).timeout_ms == timeout_ms


@pytest.mark.parametrize("field", [0, -1, 300_001, 1.5, "10", True, [1], 10**30])
def test_a_bad_timeout_in_the_body_is_refused(field: object) -> None:
    """A timeout in the body that is not a whole number from 1 to 300,000 is refused."""
    with pytest.raises(InvalidRequestError, match="timeout_ms"):
        parse({"text": "a", "timeout_ms": field})


@pytest.mark.parametrize(
    "header", ["", "0", "-1", "+5", "300001", "1.5", "1e3", " 5", "abc", "²", "٣", "0" * 9 + "19", "1" * 5_000]
)
def test_a_bad_timeout_in_the_header_is_refused(header: str) -> None:
    """X-Timeout-Ms has the same bounds, whatever its length and its kind of digits."""
    with pytest.raises(InvalidRequestError, match="X-Timeout-Ms"):
        parse({"text": "a"}, x_timeout_ms=header)


@pytest.mark.parametrize(
    ("field", "header", "lane"),
    [
        (None, None, INTERACTIVE),
        (None, "bulk", BULK),
        ("bulk", None, BULK),
        ("interactive", "bulk", INTERACTIVE),
        ("bulk", "anything", BULK),
    ],
)
def test_the_priority_comes_from_the_body_or_the_header(field: str | None, header: str | None, lane: int) -> None:
    """The body takes precedence over the header; without both, the lane is interactive."""
    assert parse({"text": "a", "priority": field}, x_priority=header).lane == lane


@pytest.mark.parametrize("priority", ["", "BULK", "batch", "bulk ", "0"])
def test_an_unknown_priority_is_refused(priority: str) -> None:
    """An unknown priority is refused in body and header, and the message lists the valid ones."""
    with pytest.raises(InvalidRequestError, match=r"interactive.* or .*bulk"):
        parse({"text": "a", "priority": priority})
    with pytest.raises(InvalidRequestError, match="X-Priority: send interactive or bulk"):
        parse({"text": "a"}, x_priority=priority)


def test_with_on_error_null_only_the_invalid_inputs_fail() -> None:
    """With on_error null, empty and too long inputs fail alone; too many inputs or wrong types fail the request."""
    request = parse({"texts": ["a", "", "x" * 51, "b"], "on_error": "null"})
    assert (request.partial, request.inputs) == (True, ("a", "", "x" * 51, "b"))
    assert {index: error.code for index, error in request.input_errors.items()} == {
        1: "invalid_request",
        2: "too_large",
    }
    with pytest.raises(InvalidRequestError, match=r"texts\[1\] is empty"):
        parse({"texts": ["a", "", "x" * 51, "b"], "on_error": "fail"})
    with pytest.raises(TooLargeError):
        parse({"texts": ["a"] * 9, "on_error": "null"})
    for wrong in ({"texts": ["a", 1], "on_error": "null"}, {"texts": ["a"], "on_error": "zero"}):
        with pytest.raises(InvalidRequestError):
            parse(wrong)


def test_an_answer_lists_each_failed_input() -> None:
    """A failed input has null in its place, and its error in a list, which is present whenever on_error is null."""
    failure = Failure("", 1, 1, "too_large", "cut it")
    parts: list[Reply] = [Vectors("r", 0, 1, 2, np.asarray([1, 2], dtype="<f4").tobytes()), failure]
    native, many = Native(), InferenceRequest(("a", "b"), 1_000, partial=True)
    assert json.loads(native.encode_result(many, InferenceResult(parts))) == {
        "embeddings": [[1.0, 2.0], None],
        "errors": [{"index": 1, "code": "too_large", "message": "cut it"}],
    }
    assert json.loads(native.encode_result(many, InferenceResult(parts[:1]))) == {
        "embeddings": [[1.0, 2.0]],
        "errors": [],
    }
    one = InferenceRequest(("a",), 1_000, partial=True, single=True)
    answer = json.loads(native.encode_result(one, InferenceResult([Failure("", 0, 1, "too_large", "cut it")])))
    assert answer == {"embedding": None, "errors": [{"index": 0, "code": "too_large", "message": "cut it"}]}


def test_an_answer_lists_the_inputs_that_were_cut() -> None:
    """Their indices are in `truncated`, which is absent if nothing was cut."""
    part = Vectors("r", 0, 2, 1, bytes(8))
    many, one = InferenceRequest(("a", "b"), 1_000), InferenceRequest(("a",), 1_000, single=True)
    cut = json.loads(Native().encode_result(many, InferenceResult([part], truncated=[1])))
    assert cut == {"embeddings": [[0.0], [0.0]], "truncated": [1]}
    assert "truncated" not in json.loads(Native().encode_result(many, InferenceResult([part])))
    alone = InferenceResult([part._replace(n=1, data=bytes(4))], truncated=[0])
    assert json.loads(Native().encode_result(one, alone)) == {"embedding": [0.0], "truncated": [0]}


def test_a_batch_takes_only_texts() -> None:
    """POST /batch_embed refuses a single `text`, which belongs to /embed, and TEI's `inputs`."""
    batch = NativeBatch()
    assert batch.parse(b'{"texts": ["a", "b"]}', {}, LIMITS).inputs == ("a", "b")
    for body in (b'{"text": "a"}', b"{}", b'{"texts": []}', b'{"inputs": ["a"]}'):
        assert batch.for_body(body) is batch
        with pytest.raises(InvalidRequestError):
            batch.parse(body, {}, LIMITS)
