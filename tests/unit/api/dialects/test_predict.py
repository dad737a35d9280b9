"""Bodies of POST /predict: any bytes give a request or an error of the client's own, and inputs stay what they are."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import Asked
from api.dispatch.dispatcher import Answered
from api.dialects.predict import Predict
from api.settings import GatewaySettings
from shared.errors import InvalidRequest, RequestError, TooLarge
from shared.keys import BULK
from shared.messages import PREDICT, Failure, Reply, Values

SETTINGS = GatewaySettings(max_inputs=8, max_input_chars=50)
WIDE = GatewaySettings()
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


def parse(body: object, settings: GatewaySettings = SETTINGS, **headers: str) -> Asked:
    """Reads a body that is given as a value, with headers: `x_priority` is the header X-Priority."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Predict().parse(json.dumps(body).encode(), named, settings)


@given(jsonish)
def test_any_bytes_give_a_request_or_a_request_error(body: bytes) -> None:
    """Nothing else is ever raised, and what is taken keeps to the limits."""
    try:
        asked = Predict().parse(body, {}, SETTINGS)
    except RequestError:
        return
    assert asked.op == PREDICT
    assert 1 <= len(asked.inputs) <= SETTINGS.max_inputs
    assert all(isinstance(each, str) and 1 <= len(each) <= SETTINGS.max_input_chars for each in asked.inputs)


@given(values)
def test_an_input_is_carried_as_it_is(value: object) -> None:
    """One alone, and among others."""
    one, many = parse({"input": value}, WIDE), parse({"inputs": [1, value]}, WIDE)
    assert [json.loads(each) for each in one.inputs] == [value]
    assert [json.loads(each) for each in many.inputs] == [1, value]
    assert (one.single, many.single) == (True, False)


def test_null_is_an_input() -> None:
    """It is not the same as nothing."""
    assert parse({"input": None}).inputs == ("null",)
    with pytest.raises(InvalidRequest, match="Send either"):
        parse({})


@pytest.mark.parametrize(
    "body", [{"input": 1, "inputs": [1]}, {"inputs": []}, {"inputs": 3}, {"inputs": None}, [1], 7, {"text": "a"}]
)
def test_anything_else_is_refused(body: object) -> None:
    """With what to send instead."""
    with pytest.raises(InvalidRequest, match=r"[Ss]end"):
        parse(body)


def test_too_many_or_too_long_ones_are_refused() -> None:
    """By the bounds that hold for texts."""
    with pytest.raises(TooLarge, match="9 inputs are over the limit of 8"):
        parse({"inputs": [0] * 9})
    with pytest.raises(TooLarge, match="characters, over the limit of 50"):
        parse({"input": "x" * 50})
    asked = parse({"inputs": [1, "x" * 50], "on_error": "null"})
    assert list(asked.refused) == [1]


def test_nesting_is_bounded() -> None:
    """What the parser takes and the writer does not is an error of the client's, like what neither takes."""
    for depth in (300, DEEPEST, 2_000):
        body = b'{"input": ' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(InvalidRequest):
            Predict().parse(body, {}, WIDE)


def test_lane_and_time_are_asked_for_as_everywhere() -> None:
    """In the body, or by headers."""
    assert parse({"input": 1, "priority": "bulk", "timeout_ms": 70}).lane == BULK
    asked = parse({"input": 1}, x_priority="bulk", x_timeout_ms="70", x_model="other")
    assert (asked.lane, asked.timeout_ms, asked.model) == (BULK, 70, "other")


def test_outputs_go_back_as_they_came() -> None:
    """The JSON of the engine is not read on its way; null stands for what has failed."""
    parts: list[Reply] = [Values("id", 0, 2, (b"[1,2]", b'"x"')), Failure("id", 2, 1, "input_failed", "no")]
    asked = parse({"inputs": [1, 2, 3], "on_error": "null"})
    answer = orjson.loads(Predict().answer(asked, Answered(parts)))
    assert answer["outputs"] == [[1, 2], "x", None]
    assert answer["errors"] == [{"index": 2, "code": "input_failed", "message": "no"}]
    one = Predict().answer(parse({"input": 1}), Answered(parts[:1]))
    assert one == b'{"output":[1,2]}'
