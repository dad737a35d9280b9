"""TEI's words: what its routes take, what they say of what is wrong, and how they answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import Asked
from api.dispatch.dispatcher import Answered
from api.dialects.native import Native
from api.settings import GatewaySettings
from api.dialects.tei import Decode, Embed, EmbedAll, Similarity, Tokenize, is_tei
from shared.codec import decode_ids
from shared.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    EmptyInputs,
    InputFailed,
    InvalidRequest,
    NoWorker,
    QueueFull,
    RedbatchError,
    RequestError,
    TooLarge,
)
from shared.messages import DECODE, EMBED, EMBED_ALL, TOKENIZE, Options, Timing, Values, Vectors

SETTINGS = GatewaySettings(max_inputs=4, max_input_chars=50)
DIALECTS = {each.route: each for each in (Embed("/"), EmbedAll("/all"), Similarity("/s"), Tokenize("/t"), Decode("/d"))}
EMBEDS = DIALECTS["/"]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)
NAMES = ("inputs", "ids", "truncate", "truncation_direction", "prompt_name", "normalize", "dimensions", "parameters")
bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, anything))


def parse(body: object, route: str = "/", **headers: str) -> Asked:
    """Reads a body that is given as a value."""
    return DIALECTS[route].parse(json.dumps(body).encode(), headers, SETTINGS)


@given(st.sampled_from(sorted(DIALECTS)), bodies.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=40))
def test_any_bytes_give_a_request_or_a_request_error(route: str, body: bytes) -> None:
    """Nothing else is ever raised, and what is taken keeps to the limits."""
    try:
        asked = DIALECTS[route].parse(body, {}, SETTINGS)
    except RequestError:
        return
    assert 1 <= len(asked.inputs) <= SETTINGS.max_inputs
    assert all(1 <= len(each) <= 4 * SETTINGS.max_input_chars for each in asked.inputs)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [1, 2]], ["a", [1, 2]]),
        ([[1], "a"], [[1], "a"]),
    ],
)
def test_inputs_are_texts_token_ids_or_both(inputs: object, expected: list[object]) -> None:
    """One list of numbers is one text's."""
    found = parse({"inputs": inputs}).inputs
    assert [decode_ids(each) if isinstance(each, bytes) else each for each in found] == expected


def test_what_is_left_out_is_as_in_tei() -> None:
    """Vectors have length 1, and a text that is too long is cut at its end; unknown fields are nothing."""
    asked = parse({"inputs": "a", "truncate": None, "prompt_name": None, "other": 1})
    assert (asked.op, asked.options) == (EMBED, Options(normalize=True, truncate="right"))


def test_every_option_is_taken() -> None:
    """The direction in both spellings."""
    body = {"inputs": "a", "prompt_name": "query", "normalize": False, "dimensions": 8}
    for direction, cut in (("Left", "left"), ("left", "left"), ("Right", "right"), ("right", "right")):
        found = parse(body | {"truncation_direction": direction})
        assert found.options == Options("query", normalize=False, dimensions=8, truncate=cut)  # type: ignore[arg-type]
    assert parse(body | {"truncate": False}).options.truncate == "no"
    asked = parse(body | {"truncate": False}, "/all")
    assert (asked.op, asked.options) == (EMBED_ALL, Options("query", truncate="no"))


def test_what_a_tokenizer_is_asked() -> None:
    """To show tokens, or the text of them; with or without the special ones."""
    asked = parse({"inputs": ["a", "b"], "add_special_tokens": False, "prompt_name": "query"}, "/t")
    assert (asked.op, asked.inputs) == (TOKENIZE, ("a", "b"))
    assert asked.options == Options("query", special_tokens=False)
    assert parse({"inputs": "a"}, "/t").options == Options(special_tokens=True)
    asked = parse({"ids": [[1, 2], [3]]}, "/d")
    assert (asked.op, [decode_ids(each) for each in asked.inputs if isinstance(each, bytes)]) == (DECODE, [[1, 2], [3]])
    assert asked.options == Options(special_tokens=False)
    assert parse({"ids": [1], "skip_special_tokens": False}, "/d").options == Options(special_tokens=True)


def test_what_is_compared_is_embedded_at_once() -> None:
    """The source first; with its parameters."""
    inputs = {"source_sentence": "a", "sentences": ["b", "c"]}
    asked = parse({"inputs": inputs, "parameters": {"prompt_name": "query", "truncate": False}}, "/s")
    assert (asked.inputs, asked.options) == (("a", "b", "c"), Options("query", normalize=True, truncate="no"))
    nothing = {"truncate": None, "truncation_direction": None, "prompt_name": None}
    for parameters in (None, {}, nothing):
        assert parse({"inputs": inputs, "parameters": parameters}, "/s").options == Options(normalize=True)
    empties: list[dict[str, object]] = [{"source_sentence": ""}, {"sentences": []}, {"sentences": ["b", ""]}]
    for empty in empties:
        with pytest.raises(EmptyInputs):
            parse({"inputs": inputs | empty}, "/s")
    with pytest.raises(TooLarge):
        parse({"inputs": inputs | {"sentences": ["b"] * 4}}, "/s")


@pytest.mark.parametrize("inputs", ["", [], [""], ["a", ""], [[]], [[1], []]])
@pytest.mark.parametrize("route", ["/", "/all"])
def test_what_is_empty_is_told_apart(route: str, inputs: object) -> None:
    """As TEI does, with a status of its own."""
    with pytest.raises(EmptyInputs) as caught:
        parse({"inputs": inputs}, route)
    status, body = EMBEDS.refusal(caught.value, "")
    assert (status, json.loads(body)) == (400, {"error": "`inputs` cannot be empty", "error_type": "Empty"})


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        ("/", {}, "inputs: "),
        ("/", {"inputs": 1}, "inputs: "),
        ("/", {"inputs": [True]}, "inputs: "),
        ("/", {"inputs": ["a"] * 5}, "5 inputs are over the limit of 4"),
        ("/", {"inputs": "x" * 51}, "over the limit of 50"),
        ("/", {"inputs": "a", "dimensions": 0}, "dimensions: "),
        ("/", {"inputs": "a", "truncation_direction": "up"}, "truncation_direction: "),
        ("/", {"inputs": "a", "normalize": "yes"}, "normalize: "),
        ("/t", {"inputs": [[1]]}, "inputs: "),
        ("/d", {"ids": "a"}, "ids: "),
        ("/s", {"inputs": {"source_sentence": "a"}}, "inputs.sentences: "),
        ("/s", {"inputs": {"source_sentence": 1, "sentences": ["a"]}}, "inputs.source_sentence: "),
    ],
)
def test_what_is_wrong_is_a_422_that_says_where(route: str, body: object, said: str) -> None:
    """In TEI's shape."""
    with pytest.raises(RequestError) as caught:
        parse(body, route)
    status, answer = DIALECTS[route].refusal(caught.value, "")
    assert (status, json.loads(answer)["error_type"]) == (422, "Validation")
    assert said in json.loads(answer)["error"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (BodyTooLarge("x"), 413, "Validation"),
        (InputFailed("x"), 424, "Backend"),
        (QueueFull("x"), 429, "Overloaded"),
        (NoWorker("x"), 503, "Unhealthy"),
        (DeadlineExceeded("x"), 504, "Backend"),
        (RedbatchError("x"), 500, "Backend"),
    ],
)
def test_other_errors_have_teis_statuses(error: RedbatchError, status: int, kind: str) -> None:
    """What went wrong with the model is none of the client's faults."""
    found, body = EMBEDS.refusal(error, "")
    assert (found, json.loads(body)) == (status, {"error": "x", "error_type": kind})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"inputs": "a"}, True),
        ({"inputs": 1}, True),
        ({"inputs": "a", "text": None}, True),
        ({"text": 'what "inputs" means'}, False),
        ({"inputs": None}, False),
        (["inputs"], False),
        ({}, False),
    ],
)
def test_whose_words_a_body_is_in(body: object, expected: bool) -> None:
    """TEI's are those with `inputs`."""
    encoded = json.dumps(body).encode()
    assert is_tei(encoded) is expected
    assert isinstance(Native().for_body(encoded), Embed) is expected
    assert not is_tei(encoded[:-1])


@pytest.mark.parametrize("own", [{"text": "b"}, {"texts": []}])
def test_a_body_in_two_ways_of_speaking_is_refused(own: dict[str, object]) -> None:
    """Neither half of it is answered in silence."""
    with pytest.raises(InvalidRequest, match="one of them"):
        Native().for_body(json.dumps({"inputs": "a"} | own).encode())


def test_vectors_are_always_in_a_list() -> None:
    """Of one text too."""
    row = np.asarray([[0.5, -1.0]], dtype="<f4")
    answered = Answered([Vectors("r", 0, 1, 2, row.tobytes())])
    assert json.loads(EMBEDS.answer(parse({"inputs": "a"}), answered)) == [[0.5, -1.0]]


def test_the_vectors_of_tokens_go_back_by_input() -> None:
    """However many tokens each has, and however the request was split."""
    numbers = np.arange(12, dtype="<f4").reshape(6, 2)
    parts = [
        Vectors("r", 0, 2, 2, numbers[:4].tobytes(), counts=(1, 3)),
        Vectors("r", 2, 1, 2, numbers[4:].tobytes(), counts=(2,)),
    ]
    told = json.loads(DIALECTS["/all"].answer(parse({"inputs": ["a", "b", "c"]}, "/all"), Answered(parts)))
    assert told == [numbers[:1].tolist(), numbers[1:4].tolist(), numbers[4:].tolist()]


def test_cosines_are_those_of_the_vectors() -> None:
    """To the first input's, in order; never over 1."""
    # In float32 the first has a product of 1.0000001 with itself.
    rows = np.asarray([[0.6000001, 0.8], [0.6000001, 0.8], [0.8, -0.6], [0.0, 1.0]], dtype="<f4")
    assert float(rows[0] @ rows[1]) > 1
    asked = parse({"inputs": {"source_sentence": "a", "sentences": ["a", "b", "c"]}}, "/s")
    told = json.loads(DIALECTS["/s"].answer(asked, Answered([Vectors("r", 0, 4, 2, rows.tobytes())])))
    assert told == pytest.approx([1.0, 0.0, 0.8], abs=1e-6)
    assert max(told) <= 1.0


def test_values_of_several_entries_are_one_list() -> None:
    """As they came."""
    parts = [Values("r", 0, 2, (b'"a"', b'"b, c"')), Values("r", 2, 1, (b'"]"',))]
    assert json.loads(DIALECTS["/d"].answer(parse({"ids": [1]}, "/d"), Answered(parts))) == ["a", "b, c", "]"]


def test_the_headers_tell_what_tei_tells() -> None:
    """Whole milliseconds, characters of texts, tokens read."""

    class OnCpu:
        def compute_type(self, _model: str | None) -> str:
            return "cpu"

    state: Any = OnCpu()
    timing = Timing(3.6, 2.2, 4, 1.4)
    vectors = Vectors("r", 0, 1, 1, bytes(4), timing, (5,))
    answered = Answered([vectors], timing.queue_ms, timing.inference_ms, 4, 5, timing.tokenize_ms)
    assert EMBEDS.headers(state, parse({"inputs": ["ab", "cde", [1]]}), answered, 0.0123) == {
        "x-compute-type": "cpu",
        "x-compute-time": "12",
        "x-total-time": "12",
        "x-compute-characters": "5",
        "x-compute-tokens": "5",
        "x-tokenization-time": "1",
        "x-queue-time": "4",
        "x-inference-time": "2",
    }


def test_time_and_lane_come_from_headers() -> None:
    """As on every route."""
    asked = parse({"inputs": "a"}, **{"x-timeout-ms": "1234", "x-priority": "bulk"})
    assert (asked.timeout_ms, asked.lane) == (1234, 1)
    with pytest.raises(InvalidRequest):
        parse({"inputs": "a"}, **{"x-priority": "first"})
