"""Integers of more than 64 bits in inputs: which inputs are refused, and what finding these takes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects import long_integers
from api.dialects.long_integers import MARK, mark_long_integers
from api.dialects.predict import Predict
from api.dispatch.size_limits import InputLimit
from api.jobs.inputs import JobInput, check_value
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import JobBody, parse_job_body
from api.settings import GatewaySettings
from shared.errors import InvalidRequestError, RequestError

LIMITS = GatewaySettings().requests
LIMIT = InputLimit(LIMITS.max_input_bytes, "setting")
MB = 2**20
RUN = "1" * MB
REFUSED = [str(2**64), str(-(2**63) - 1), "9" * 20, RUN, f"-{RUN}", f'{{"a": ["1", {2**70}]}}']
VALID = [
    *('"1.8446744073709552e+19"', "18446744073709551616.0", "1.8446744073709552e+19", "18446744073709551616e2"),
    *(str(2**64 - 1), str(-(2**63)), "9" * 19, f'"{RUN}"', f"0.{RUN}", f'"e+{RUN}"'),
    *(rf'"\"{2**64}"', rf'"\\\"{2**64}\\"', f'{{"{2**64}": [1]}}', rf'"\u0031{2**64}"'),
]
edges = st.sampled_from([2**63, 2**64, 10**19, 10**20, 10**30])
scalars = (
    st.builds(lambda edge, step, sign: (edge + step) * sign, edges, st.integers(-2, 2), st.sampled_from([1, -1]))
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(f'"\\e+-.é{2**64}', max_size=50)
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\1', max_size=25), inner), max_leaves=9
)


def predict(inputs: str) -> list[JobInput]:
    """Returns the inputs of a request with on_error, or their errors."""
    request = Predict().parse(b'{"inputs": [%b], "on_error": "null"}' % inputs.encode(), {}, LIMITS)
    return [request.input_errors.get(i, value) for i, value in enumerate(request.inputs)]


def job(inputs: str) -> list[JobInput]:
    """Returns those of a job in one document."""
    return [check_value(each, LIMIT) for each in parse_job_body(b'{"inputs": [%b]}' % inputs.encode()).values()]


def lines(inputs: str) -> list[JobInput]:
    """Returns those of a job in lines."""
    reader = NdjsonReader(100, 100, LIMIT)
    return reader.feed(b"".join(b'{"input": %b}\n' % each.encode() for each in inputs.split(SEPARATOR)))


SEPARATOR = " , "


@pytest.mark.parametrize("parse", [predict, job, lines])
def test_only_the_inputs_at_fault_are_refused(parse: Callable[[str], list[JobInput]]) -> None:
    """Their neighbours keep their values, also those that look the same, or have a million digits."""
    inputs = [each for pair in zip(REFUSED, VALID, strict=False) for each in pair] + VALID[len(REFUSED) :]
    for found, text in zip(parse(SEPARATOR.join(inputs)), inputs, strict=True):
        if text in REFUSED:
            assert isinstance(found, InvalidRequestError)
            assert "integer outside -2^63 to 2^64 - 1" in found.message
        else:
            assert isinstance(found, str)
            assert orjson.loads(found) == orjson.loads(text)


@pytest.mark.parametrize("text", REFUSED)
def test_a_request_with_one_is_refused(text: str) -> None:
    """Without on_error, the error names the input."""
    with pytest.raises(InvalidRequestError, match=r"inputs\[1\]: it has an integer outside"):
        Predict().parse(b'{"inputs": [1, %b]}' % text.encode(), {}, LIMITS)


@pytest.mark.parametrize("field", ["timeout_ms", "model", "priority", "inputs", "texts", "prompt_name", "other"])
def test_one_elsewhere_is_an_invalid_field(field: str) -> None:
    """An option is no such integer, and none is taken for a text."""
    body = b'{"input": 1, "%b": %d}' % (field.encode(), 2**70)
    for parse in (parse_job_body, lambda body: Predict().parse(body, {}, LIMITS)):
        with pytest.raises(RequestError) as raised:
            parse(body)
        assert MARK not in raised.value.message


@pytest.mark.parametrize("piece_bytes", [1, 7, 30, 2**18])
@given(documents, st.booleans())
def test_exactly_the_integers_of_more_than_64_bits_are_marked(
    piece_bytes: int,
    document: object,
    is_escaped: bool,
) -> None:
    """Wherever a document is cut into pieces."""
    body = json.dumps(document, ensure_ascii=is_escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_integers, "PIECE_BYTES", piece_bytes)
        assert orjson.loads(mark_long_integers(body)) == _marked(document)


def _marked(value: object) -> object:
    if isinstance(value, list):
        return [_marked(each) for each in value]
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    return {MARK: 0} if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


@pytest.mark.parametrize(
    "part", ["0{}", "00{}", "+{}", "-0{}", "{}a", "a{}", '{}""', "{} 1", "1e{}1-", "--{}", "{}-", '"']
)
def test_what_is_no_json_stays_so(part: str) -> None:
    """No mark makes a document valid."""
    body = b'{"input": [%b]}' % part.format(2**64).encode()
    with pytest.raises(InvalidRequestError, match="not valid JSON"):
        Predict().parse(body, {}, LIMITS)


@pytest.mark.parametrize("unit", [r"\n", r"\"", r"\\", "1", f"{2**64} ", "e+1", "a"])
def test_a_search_takes_no_more_memory_than_the_body(unit: str) -> None:
    """Escapes and digits in texts, beside an integer that makes the search necessary."""
    body = b'{"inputs": [%d, "%b"]}' % (2**64, unit.encode() * (4 * MB // len(unit)))
    tracemalloc.start()
    try:
        assert mark_long_integers(body) != body
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(body)  # a copy of it, and one text without an end


def test_a_body_can_be_built_from_fields() -> None:
    """Without a document."""
    assert JobBody(inputs=[1]).values() == [1]
