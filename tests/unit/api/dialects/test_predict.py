"""Bodies of POST /predict: any bytes give a request or a RequestError, and inputs keep their values."""

from __future__ import annotations

import base64
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.predict import Predict
from api.dialects.request import InferenceRequest, InferenceResult
from api.settings import GatewaySettings
from api.settings_groups import RequestLimits
from shared.codec import encode_binary
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.keys import BULK
from shared.messages import BYTES, NPY, PREDICT, Failure, Reply, Values

LIMITS = GatewaySettings(max_inputs=8, max_input_bytes=50).requests
WIDE = GatewaySettings().requests
DEEPEST = 1_000

numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=60)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)
bodies = st.fixed_dictionaries({}, optional={"input": values, "inputs": values, "timeout_ms": values, "other": values})
jsonish = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    bodies.map(lambda value: json.dumps(value).encode()),
    st.tuples(bodies, st.integers(0, 60)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]]),
)


def parse(body: object, limits: RequestLimits = LIMITS, **headers: str) -> InferenceRequest:
    """Parses a body from a value, with headers: `x_priority` is the header X-Priority."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Predict().parse(json.dumps(body).encode(), named, limits)


@given(jsonish)
def test_any_bytes_give_a_request_or_a_request_error(body: bytes) -> None:
    """Any bytes raise only RequestError, and an accepted request is within the limits."""
    try:
        request = Predict().parse(body, {}, LIMITS)
    except RequestError:
        return
    assert request.op == PREDICT
    assert 1 <= len(request.inputs) <= LIMITS.max_inputs
    assert all(isinstance(each, str) and 1 <= len(each) <= LIMITS.max_input_chars for each in request.inputs)


@given(values)
def test_an_input_keeps_its_value(value: object) -> None:
    """An input keeps its JSON value, alone and among others."""
    one, many = parse({"input": value}, WIDE), parse({"inputs": [1, value]}, WIDE)
    assert [json.loads(each) for each in one.inputs] == [value]
    assert [json.loads(each) for each in many.inputs] == [1, value]
    assert (one.single, many.single) == (True, False)


def test_null_is_an_input() -> None:
    """A null input is an input; a body without inputs is refused."""
    assert parse({"input": None}).inputs == ("null",)
    with pytest.raises(InvalidRequestError, match="Send either"):
        parse({})


@pytest.mark.parametrize(
    "body", [{"input": 1, "inputs": [1]}, {"inputs": []}, {"inputs": 3}, {"inputs": None}, [1], 7, {"text": "a"}]
)
def test_other_bodies_are_refused(body: object) -> None:
    """A body without valid inputs is refused, and the message says what to send."""
    with pytest.raises(InvalidRequestError, match=r"[Ss]end"):
        parse(body)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("prompt_name", "^prompt_name: a function has no such option"),
        ("truncate", "^truncate: a function has no such option"),
        ("dimensions", "^dimensions: a function has no such option"),
        ("inputss", "^inputss: there is no such field; did you mean inputs\\?"),
        ("time_out_ms", "^time_out_ms: .*did you mean timeout_ms"),
        ("texts", "^texts: there is no such field; the fields are .*input"),
    ],
)
def test_an_option_of_texts_or_an_unknown_field_is_refused(field: str, message: str) -> None:
    """The message names the field, whatever its value is."""
    for value in (1, None):
        with pytest.raises(InvalidRequestError, match=message):
            parse({"input": 1, field: value})


def test_too_many_or_too_long_inputs_are_refused() -> None:
    """Inputs have the same limits as texts; their length is that of their JSON."""
    with pytest.raises(TooLargeError, match=r"9 inputs are over the limit of 8: .*max_inputs"):
        parse({"inputs": [0] * 9})
    with pytest.raises(TooLargeError, match=r"52 bytes, over the limit of 50: .*max_input_bytes"):
        parse({"input": "x" * 50})
    with pytest.raises(TooLargeError, match="52 bytes"):
        parse({"input": "é" * 25})
    request = parse({"inputs": [1, "x" * 50], "on_error": "null"})
    assert list(request.input_errors) == [1]


@given(st.binary(max_size=200), st.sampled_from([("base64", BYTES), ("npy", NPY)]))
def test_an_object_with_a_binary_key_alone_is_binary(data: bytes, key_and_kind: tuple[str, str]) -> None:
    """It holds the bytes of its base64, alone and beside JSON inputs; with another key beside it, it is JSON."""
    key, kind = key_and_kind
    value = {key: base64.b64encode(data).decode()}
    assert parse({"input": value}, WIDE).inputs == (encode_binary(kind, data),)
    assert parse({"inputs": [1, value]}, WIDE).inputs == ("1", encode_binary(kind, data))
    for json_value in ({**value, "name": 1}, [value], {"image": value}, {key.upper(): value[key]}):
        assert [json.loads(each) for each in parse({"input": json_value}, WIDE).inputs] == [json_value]


@given(
    st.lists(
        st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(), min_size=1
    )
)
def test_other_numbers_keep_their_value(content: list[object]) -> None:
    """Integers of 64 bits, floats of any size, and digits in texts."""
    (encoded,) = parse({"input": [content, str(content)]}, WIDE).inputs
    assert json.loads(encoded) == [content, str(content)]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + 400 * "0" + ".0", "Infinity", "NaN"])
def test_no_number_is_infinite(number: str) -> None:
    """A number beyond the range of floats is no valid JSON here."""
    with pytest.raises(InvalidRequestError, match="not valid JSON"):
        Predict().parse(b'{"input": [%b]}' % number.encode(), {}, WIDE)


@pytest.mark.parametrize("key", ["base64", "npy"])
@pytest.mark.parametrize(
    "content", ["YQ", "Y", "YQ==\n", "_-==", "é", "YQ==YQ==", "data:;base64,YQ==", 5, None, ["YQ=="]]
)
def test_other_content_of_a_binary_key_is_refused(key: str, content: object) -> None:
    """Only complete base64 of the standard alphabet is taken; the message names the field."""
    with pytest.raises(InvalidRequestError, match=rf"inputs\[1\].{key}: send a text in base64"):
        parse({"inputs": [1, {key: content}]})
    request = parse({"inputs": [1, {key: content}, 2], "on_error": "null"})
    assert (list(request.input_errors), request.inputs[0], request.inputs[2]) == ([1], "1", "2")


def test_binary_inputs_are_bounded_by_their_content() -> None:
    """50 bytes are within a limit of 50, although their base64 is longer."""
    encoded = [base64.b64encode(bytes(size)).decode() for size in (50, 51)]
    assert parse({"input": {"base64": encoded[0]}}).inputs == (encode_binary(BYTES, bytes(50)),)
    with pytest.raises(TooLargeError, match="51 bytes, over the limit of 50"):
        parse({"input": {"base64": encoded[1]}})


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [("application/octet-stream", BYTES), ("Application/Octet-Stream; x=y", BYTES), ("application/x-npy", NPY)],
)
def test_a_binary_body_is_one_input(media_type: str, kind: str) -> None:
    """Its bytes are the input, whatever they are; lane, time and model come from headers."""
    headers = {"content-type": media_type, "x-priority": "bulk", "x-timeout-ms": "70", "x-model": "other"}
    for body in (b"", b'{"input": 1}', bytes(50)):
        request = Predict().parse(body, headers, LIMITS)
        assert (request.inputs, request.op, request.single) == ((encode_binary(kind, body),), PREDICT, True)
        assert (request.lane, request.timeout_ms, request.model) == (BULK, 70, "other")
    with pytest.raises(TooLargeError, match="51 bytes, over the limit of 50"):
        Predict().parse(bytes(51), headers, LIMITS)


def test_nesting_is_bounded() -> None:
    """Deep nesting is a client's error, whether the parser refuses it or only the encoder does."""
    deepest = b"[" * 254 + b"]" * 254
    assert Predict().parse(b'{"input": %b}' % deepest, {}, WIDE).inputs == (deepest.decode(),)
    too_deep = r"^input: it is nested more than 254 levels deep\.$"
    for depth, message in ((255, too_deep), (DEEPEST, too_deep), (2_000, "depth limit exceeded")):
        with pytest.raises(InvalidRequestError, match=message):
            Predict().parse(b'{"input": ' + b"[" * depth + b"]" * depth + b"}", {}, WIDE)


def test_lane_time_and_model_come_from_body_or_headers() -> None:
    """Body and headers set lane, time and model, as on /embed."""
    assert parse({"input": 1, "priority": "bulk", "timeout_ms": 70}).lane == BULK
    request = parse({"input": 1}, x_priority="bulk", x_timeout_ms="70", x_model="other")
    assert (request.lane, request.timeout_ms, request.model) == (BULK, 70, "other")


def test_outputs_are_passed_on_unchanged() -> None:
    """The engine's JSON is passed on without parsing; a failed input has null as its output."""
    parts: list[Reply] = [Values("id", 0, 2, (b"[1,2]", b'"x"')), Failure("id", 2, 1, "input_failed", "no")]
    request = parse({"inputs": [1, 2, 3], "on_error": "null"})
    answer = orjson.loads(Predict().encode_result(request, InferenceResult(parts)))
    assert answer["outputs"] == [[1, 2], "x", None]
    assert answer["errors"] == [{"index": 2, "code": "input_failed", "message": "no"}]
    one = Predict().encode_result(parse({"input": 1}), InferenceResult(parts[:1]))
    assert one == b'{"output":[1,2]}'
