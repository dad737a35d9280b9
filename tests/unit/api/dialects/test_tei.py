"""TEI's dialect: the bodies of its routes, their errors, and their answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.native import Native
from api.dialects.request import InferenceRequest, InferenceResult
from api.dialects.tei import Decode, Embed, EmbedAll, Similarity, Tokenize, is_tei
from api.settings import GatewaySettings
from shared.codec import decode_ids
from shared.errors import (
    BodyTooLargeError,
    DeadlineExceededError,
    EmptyInputsError,
    InputFailedError,
    InvalidRequestError,
    NoWorkerError,
    QueueFullError,
    RedbatchError,
    RequestError,
    TooLargeError,
    UnsupportedOperationError,
)
from shared.messages import DECODE, EMBED, EMBED_ALL, EMBED_SPARSE, TOKENIZE, Options, Timing, Values, Vectors

LIMITS = GatewaySettings(max_inputs=4, max_input_chars=50).requests
DIALECTS = {each.route: each for each in (Embed("/"), EmbedAll("/all"), Similarity("/s"), Tokenize("/t"), Decode("/d"))}
EMBED_DIALECT = DIALECTS["/"]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)
NAMES = ("inputs", "ids", "truncate", "truncation_direction", "prompt_name", "normalize", "dimensions", "parameters")
bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, anything))


def parse(body: object, route: str = "/", **headers: str) -> InferenceRequest:
    """Parses a body from a value."""
    return DIALECTS[route].parse(json.dumps(body).encode(), headers, LIMITS)


@given(st.sampled_from(sorted(DIALECTS)), bodies.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=40))
def test_any_bytes_give_a_request_or_a_request_error(route: str, body: bytes) -> None:
    """Any bytes raise only RequestError, and an accepted request is within the limits."""
    try:
        request = DIALECTS[route].parse(body, {}, LIMITS)
    except RequestError:
        return
    assert 1 <= len(request.inputs) <= LIMITS.max_inputs
    assert all(1 <= len(each) <= 4 * LIMITS.max_input_chars for each in request.inputs)


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
    """Inputs may be texts and token ids, mixed; a list of numbers is the ids of one text."""
    found = parse({"inputs": inputs}).inputs
    assert [decode_ids(each) if isinstance(each, bytes) else each for each in found] == expected


def test_defaults_are_those_of_tei() -> None:
    """By default vectors are normalized and a long text is truncated at its end; unknown fields are ignored."""
    request = parse({"inputs": "a", "truncate": None, "prompt_name": None, "other": 1})
    assert (request.op, request.options) == (EMBED, Options(normalize=True, truncate="right"))


def test_every_option_is_parsed() -> None:
    """All options reach the request; the direction may begin with a capital or a small letter."""
    body = {"inputs": "a", "prompt_name": "query", "normalize": False, "dimensions": 8}
    for direction, cut in (("Left", "left"), ("left", "left"), ("Right", "right"), ("right", "right")):
        found = parse(body | {"truncation_direction": direction})
        assert found.options == Options("query", normalize=False, dimensions=8, truncate=cut)  # type: ignore[arg-type]
    assert parse(body | {"truncate": False}).options.truncate == "no"
    request = parse(body | {"truncate": False}, "/all")
    assert (request.op, request.options) == (EMBED_ALL, Options("query", truncate="no"))


@pytest.mark.parametrize("route", ["/", "/all", "/s"])
def test_what_texts_are_for_is_a_field_on_each_route_that_embeds(route: str) -> None:
    """By the names of several APIs; /similarity has it among its parameters."""

    def request_with(**fields: str) -> InferenceRequest:
        if route == "/s":
            return parse({"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": fields}, route)
        return parse({"inputs": "a", **fields}, route)

    assert request_with(input_type="query").input_type == "query"
    assert request_with(task="retrieval.query").input_type == "retrieval.query"
    assert request_with(instruction="Find animals.").options.instruction == "Find animals."
    with pytest.raises(InvalidRequestError, match=r"^task: it contradicts input_type"):
        request_with(input_type="query", task="clustering")


def test_a_sparse_encoder_has_no_dense_vectors_with_or_without_normalize() -> None:
    """The message is true of both: TEI's words are for the former, its default."""
    _, encoded = Embed("/").encode_error(UnsupportedOperationError.of(EMBED, "It is not.", (EMBED_SPARSE,)), "")
    words = "Backend error: `normalize` is not available for SPLADE models, nor /embed without it. It is not."
    assert json.loads(encoded)["error"] == words


def test_tokenizer_requests() -> None:
    """/tokenize and /decode have their own operations, with or without special tokens."""
    request = parse({"inputs": ["a", "b"], "add_special_tokens": False, "prompt_name": "query"}, "/t")
    assert (request.op, request.inputs) == (TOKENIZE, ("a", "b"))
    assert request.options == Options("query", special_tokens=False)
    assert parse({"inputs": "a"}, "/t").options == Options(special_tokens=True)
    request = parse({"ids": [[1, 2], [3]]}, "/d")
    assert (request.op, [decode_ids(each) for each in request.inputs if isinstance(each, bytes)]) == (
        DECODE,
        [[1, 2], [3]],
    )
    assert request.options == Options(special_tokens=False)
    assert parse({"ids": [1], "skip_special_tokens": False}, "/d").options == Options(special_tokens=True)


def test_similarity_embeds_all_sentences_in_one_request() -> None:
    """The source sentence is the first input; the parameters apply to all; an empty sentence is refused."""
    inputs = {"source_sentence": "a", "sentences": ["b", "c"]}
    request = parse({"inputs": inputs, "parameters": {"prompt_name": "query", "truncate": False}}, "/s")
    assert (request.inputs, request.options) == (("a", "b", "c"), Options("query", normalize=True, truncate="no"))
    nothing = {"truncate": None, "truncation_direction": None, "prompt_name": None}
    for parameters in (None, {}, nothing):
        assert parse({"inputs": inputs, "parameters": parameters}, "/s").options == Options(normalize=True)
    empties: list[dict[str, object]] = [{"source_sentence": ""}, {"sentences": []}, {"sentences": ["b", ""]}]
    for empty in empties:
        with pytest.raises(EmptyInputsError):
            parse({"inputs": inputs | empty}, "/s")
    with pytest.raises(TooLargeError):
        parse({"inputs": inputs | {"sentences": ["b"] * 4}}, "/s")


@pytest.mark.parametrize("inputs", ["", [], [""], ["a", ""], [[]], [[1], []]])
@pytest.mark.parametrize("route", ["/", "/all"])
def test_empty_inputs_have_a_separate_error(route: str, inputs: object) -> None:
    """Empty inputs are a 400 of type Empty, as in TEI."""
    with pytest.raises(EmptyInputsError) as caught:
        parse({"inputs": inputs}, route)
    status, body = EMBED_DIALECT.encode_error(caught.value, "")
    assert (status, json.loads(body)) == (400, {"error": "`inputs` cannot be empty", "error_type": "Empty"})


SIMILAR = {"source_sentence": "a", "sentences": ["b"]}


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("/", {}, "inputs: "),
        ("/", {"inputs": 1}, "inputs: "),
        ("/", {"inputs": [True]}, "inputs[0] is neither"),
        ("/", {"inputs": ["a"] * 5}, "5 inputs are over the limit of 4"),
        ("/", {"inputs": "x" * 51}, "over the limit of 50"),
        ("/", {"inputs": "a", "dimensions": 0}, "dimensions: "),
        ("/", {"inputs": "a", "truncation_direction": "up"}, "truncation_direction: "),
        ("/", {"inputs": "a", "normalize": "yes"}, "normalize: "),
        ("/t", {"inputs": [[1]]}, "inputs: "),
        ("/d", {"ids": "a"}, "ids: "),
        ("/s", {"inputs": {"source_sentence": "a"}}, "inputs.sentences: "),
        ("/s", {"inputs": {"source_sentence": 1, "sentences": ["a"]}}, "inputs.source_sentence: "),
        ("/s", {"inputs": "a"}, "inputs: send an object."),
        ("/s", {"inputs": SIMILAR, "parameters": True}, "parameters: send an object."),
        ("/s", {"inputs": SIMILAR, "parameters": {"truncate": 1}}, "parameters.truncate: "),
        ("/s", {"inputs": {"source_sentence": "a", "sentences": ["b", 1]}}, "inputs.sentences[1]: "),
    ],
)
def test_an_invalid_field_is_a_422_that_names_it(route: str, body: object, message: str) -> None:
    """An invalid field is a 422 in TEI's format, and the message names the field or the limit."""
    with pytest.raises(RequestError) as caught:
        parse(body, route)
    status, answer = DIALECTS[route].encode_error(caught.value, "")
    assert (status, json.loads(answer)["error_type"]) == (422, "Validation")
    assert message in json.loads(answer)["error"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (BodyTooLargeError("x"), 413, "Validation"),
        (InputFailedError("x"), 424, "Backend"),
        (QueueFullError("x"), 429, "Overloaded"),
        (NoWorkerError("x"), 503, "Unhealthy"),
        (DeadlineExceededError("x"), 504, "Backend"),
        (RedbatchError("x"), 500, "Backend"),
    ],
)
def test_other_errors_have_the_statuses_of_tei(error: RedbatchError, status: int, kind: str) -> None:
    """Each branch of the error tree has TEI's status and type; a failure of the model is not the client's."""
    found, body = EMBED_DIALECT.encode_error(error, "")
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
def test_a_body_with_inputs_is_in_the_dialect_of_tei(body: object, expected: bool) -> None:
    """A body of /embed is TEI's if it is an object with `inputs` that are not null."""
    encoded = json.dumps(body).encode()
    assert is_tei(encoded) is expected
    assert isinstance(Native().for_body(encoded), Embed) is expected
    assert not is_tei(encoded[:-1])


@pytest.mark.parametrize("own", [{"text": "b"}, {"texts": []}])
def test_a_body_in_two_dialects_is_refused(own: dict[str, object]) -> None:
    """A body with inputs of TEI and of Redbatch is refused, so that neither half is ignored silently."""
    with pytest.raises(InvalidRequestError, match="one of them"):
        Native().for_body(json.dumps({"inputs": "a"} | own).encode())


def test_vectors_are_always_in_a_list() -> None:
    """A single text has its vector in a list too."""
    row = np.asarray([[0.5, -1.0]], dtype="<f4")
    result = InferenceResult([Vectors("r", 0, 1, 2, row.tobytes())])
    assert json.loads(EMBED_DIALECT.encode_result(parse({"inputs": "a"}), result)) == [[0.5, -1.0]]


def test_the_vectors_of_tokens_are_grouped_by_input() -> None:
    """Vectors of tokens are grouped by input, whatever the number of tokens and the split into entries."""
    numbers = np.arange(12, dtype="<f4").reshape(6, 2)
    parts = [
        Vectors("r", 0, 2, 2, numbers[:4].tobytes(), counts=(1, 3)),
        Vectors("r", 2, 1, 2, numbers[4:].tobytes(), counts=(2,)),
    ]
    answer = json.loads(
        DIALECTS["/all"].encode_result(parse({"inputs": ["a", "b", "c"]}, "/all"), InferenceResult(parts))
    )
    assert answer == [numbers[:1].tolist(), numbers[1:4].tolist(), numbers[4:].tolist()]


def test_similarity_returns_cosines() -> None:
    """The answer is the cosine of each sentence with the first input, in order, and never above 1."""
    # In float32 the product of the first vector with itself is 1.0000001.
    rows = np.asarray([[0.6000001, 0.8], [0.6000001, 0.8], [0.8, -0.6], [0.0, 1.0]], dtype="<f4")
    assert float(rows[0] @ rows[1]) > 1
    request = parse({"inputs": {"source_sentence": "a", "sentences": ["a", "b", "c"]}}, "/s")
    answer = json.loads(DIALECTS["/s"].encode_result(request, InferenceResult([Vectors("r", 0, 4, 2, rows.tobytes())])))
    assert answer == pytest.approx([1.0, 0.0, 0.8], abs=1e-6)
    assert max(answer) <= 1.0


def test_values_of_several_entries_are_joined() -> None:
    """The values of all entries form one list, in order and unchanged."""
    parts = [Values("r", 0, 2, (b'"a"', b'"b, c"')), Values("r", 2, 1, (b'"]"',))]
    assert json.loads(DIALECTS["/d"].encode_result(parse({"ids": [1]}, "/d"), InferenceResult(parts))) == [
        "a",
        "b, c",
        "]",
    ]


def test_the_headers_are_those_of_tei() -> None:
    """The headers have whole milliseconds, the characters of texts, and the tokens that the model read."""

    class CpuWorkers:
        def compute_type(self, _model: str | None) -> str:
            return "cpu"

    workers: Any = CpuWorkers()
    timing = Timing(3.6, 2.2, 4, 1.4)
    vectors = Vectors("r", 0, 1, 1, bytes(4), timing, (5,))
    result = InferenceResult([vectors], timing.queue_ms, timing.inference_ms, 4, 5, timing.tokenize_ms)
    assert EMBED_DIALECT.headers(workers, parse({"inputs": ["ab", "cde", [1]]}), result, 0.0123) == {
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
    """X-Timeout-Ms and X-Priority set time and lane, and an unknown priority is refused."""
    request = parse({"inputs": "a"}, **{"x-timeout-ms": "1234", "x-priority": "bulk"})
    assert (request.timeout_ms, request.lane) == (1234, 1)
    with pytest.raises(InvalidRequestError):
        parse({"inputs": "a"}, **{"x-priority": "first"})
