"""The dialects of /score, /classify and /predict of classifiers: inputs, answers and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.base import BaseDialect
from api.dialects.predict import Predict
from api.dialects.request import InferenceResult, Labels, Stamp
from api.dialects.tei import Default, DefaultPredict, EmbedSparse
from api.dialects.tei_predict import TeiPredict
from api.dialects.tei_rerank import TeiRerank
from api.dialects.vllm import Classify, Score
from api.dispatch.splitting import split
from api.settings import GatewaySettings
from shared.codec import decode_body, encode_ids
from shared.errors import InputFailedError, InternalError, RequestError, UnsupportedOperationError
from shared.keys import BULK, INTERACTIVE
from shared.messages import CLASSIFY, EMBED_SPARSE, SCORE, Options, Vectors
from tests.unit.api.dialects.test_native import headers, jsonish, values

LIMITS = GatewaySettings(max_inputs=4, max_input_chars=50).requests
SCORES, CLASSES, PREDICT = Score(), Classify(), TeiPredict()
LABELS = Labels(("no", "maybe", "yes"), "softmax")
NAMES = (
    "text_1",
    "text_2",
    "queries",
    "documents",
    "input",
    "inputs",
    "model",
    "use_activation",
    "priority",
    "truncate",
)

bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values | st.lists(st.lists(st.text(max_size=3)))))


def parse(dialect: BaseDialect, body: dict[str, Any], given: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - fewer casts
    """Returns the request in a body."""
    return dialect.parse(json.dumps(body).encode(), given or {}, LIMITS)


def answer(dialect: BaseDialect, body: dict[str, Any], logits: list[list[float]], labels: Labels = LABELS) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the answer to a body whose inputs get these logits."""
    request = parse(dialect, body)._replace(labels=labels, stamp=Stamp("r-1", 5))
    data = np.asarray(logits, dtype="<f4").tobytes()
    result = InferenceResult([Vectors("", 0, len(logits), len(logits[0]), data)], tokens=9)
    return json.loads(dialect.encode_result(request, result))


def error(dialect: BaseDialect, body: dict[str, Any]) -> tuple[int, Any]:
    """Returns status and body of the error for a request body."""
    with pytest.raises(RequestError) as caught:
        parse(dialect, body)
    status, encoded = dialect.encode_error(caught.value, "r-1")
    return status, json.loads(encoded)


@given(
    st.sampled_from([SCORES, CLASSES, PREDICT]),
    jsonish | bodies.map(lambda value: json.dumps(value).encode()),
    headers,
    headers,
)
def test_any_bytes_give_a_request_or_a_request_error(
    dialect: BaseDialect, data: bytes, timeout: str | None, priority: str | None
) -> None:
    """Any bytes raise only RequestError, and each input of an accepted request is in an entry."""
    given = {"x-timeout-ms": timeout, "x-priority": priority}
    try:
        request = dialect.parse(data, {name: value for name, value in given.items() if value is not None}, LIMITS)
        entries, _ = split(request, 2)
    except RequestError:
        return
    assert sum(each.n for each in entries) == len(request.inputs) <= LIMITS.max_inputs
    assert request.op == (SCORE if dialect is SCORES else CLASSIFY)


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        ({"text_1": "q", "text_2": "a"}, [("q", ["a"])]),
        ({"text_1": "q", "text_2": ["a", "b", "c"]}, [("q", ["a", "b"]), ("q", ["c"])]),
        ({"text_1": ["q"], "text_2": ["a", "b"]}, [("q", ["a", "b"])]),
        ({"queries": ["q", "r"], "documents": ["a", "b"]}, [("q", ["a"]), ("r", ["b"])]),
        ({"data_1": ["q", "q", "q", "r"], "data_2": list("abcd")}, [("q", ["a", "b"]), ("q", ["c"]), ("r", ["d"])]),
        ({"queries": "q", "items": ["a", ""]}, [("q", ["a", ""])]),
    ],
)
def test_pairs_with_one_first_text_share_entries(body: dict[str, Any], pairs: list[tuple[str, list[str]]]) -> None:
    """One to one, one to many, or each with its own; an entry has one query, and positions count all inputs."""
    entries, _ = split(parse(SCORES, body), 2)
    bodies = [decode_body(each.body) for each in entries]
    assert [(each.options.query, list(each.inputs)) for each in bodies] == pairs
    assert [each.position for each in entries] == [sum(each.n for each in entries[:i]) for i in range(len(entries))]


def test_the_answer_for_scores() -> None:
    """In the order of the pairs, as vLLM has it; scores from 0 to 1, or logits."""
    body = {"model": "m", "text_1": "q", "text_2": ["a", "b"]}
    found = answer(SCORES, body, [[0.0], [3.0]])
    assert found["data"][0] == {"index": 0, "object": "score", "score": 0.5}
    assert found["data"][1]["score"] == pytest.approx(0.952574, abs=1e-6)
    assert {name: value for name, value in found.items() if name != "data"} == {
        "id": "r-1",
        "object": "list",
        "created": 5,
        "model": "m",
        "usage": {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None},
    }
    raw = answer(SCORES, body | {"use_activation": False}, [[0.0], [3.0]])
    assert [each["score"] for each in raw["data"]] == [0.0, 3.0]


def test_the_answer_for_classes() -> None:
    """For each input the best label and the scores of all, in the order of the labels: softmax, or a sigmoid each."""
    found = answer(CLASSES, {"model": "m", "input": ["a", "b"]}, [[0.0, 1.0, 2.0], [9.0, 0.0, 0.0]])
    assert [(each["index"], each["label"], each["num_classes"]) for each in found["data"]] == [
        (0, "yes", 3),
        (1, "no", 3),
    ]
    assert found["data"][0]["probs"] == pytest.approx([0.090031, 0.244728, 0.665241], abs=1e-6)
    several = answer(CLASSES, {"input": "a"}, [[0.0, 1.0, 2.0]], LABELS._replace(activation="sigmoid"))
    assert several["data"][0]["probs"] == pytest.approx([0.5, 0.731059, 0.880797], abs=1e-6)
    raw = answer(CLASSES, {"input": "a", "use_activation": False}, [[0.0, 1.0, -2.0]])
    assert raw["data"][0]["probs"] == [0.0, 1.0, -2.0]


def test_token_ids_are_classified_too() -> None:
    """A list of numbers is the ids of one text."""
    request = parse(CLASSES, {"input": [101, 102]})
    assert (request.inputs, request.options) == ((encode_ids([101, 102]),), Options())


@pytest.mark.parametrize(
    ("inputs", "texts", "queries", "single"),
    [
        ("a", ("a",), (), True),
        (["a"], ("a",), (), True),
        (["a", "b"], ("b",), ("a",), True),
        ([["a"], ["b"]], ("a", "b"), (), False),
        ([["a"], ["b"], ["c", "d"]], ("a", "b", "d"), (None, None, "c"), False),
        ([["", "d"]], ("d",), ("",), False),
    ],
)
def test_a_flat_list_of_two_texts_is_one_pair(
    inputs: object, texts: tuple[str, ...], queries: tuple[str | None, ...], *, single: bool
) -> None:
    """As TEI has it: a batch is a list of lists."""
    request = parse(PREDICT, {"inputs": inputs})
    assert (request.op, request.inputs, request.queries, request.single) == (CLASSIFY, texts, queries, single)


def test_the_answer_of_a_classifier_for_teis_clients() -> None:
    """All labels, the best first; of one input without a list around it."""
    found = answer(PREDICT, {"inputs": "a"}, [[0.0, 1.0, 2.0]])
    assert [each["label"] for each in found] == ["yes", "maybe", "no"]
    assert [each["score"] for each in found] == pytest.approx([0.665241, 0.244728, 0.090031], abs=1e-6)
    found = answer(PREDICT, {"inputs": [["a"], ["b"]], "raw_scores": True}, [[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]])
    assert found == [
        [{"score": 2.0, "label": "yes"}, {"score": 1.0, "label": "maybe"}, {"score": 0.0, "label": "no"}],
        [{"score": 3.0, "label": "no"}, {"score": 0.0, "label": "yes"}, {"score": -1.0, "label": "maybe"}],
    ]


def test_a_score_that_is_no_number_and_labels_that_do_not_fit_are_errors() -> None:
    """Nothing wrong is sent with the status 200."""
    with pytest.raises(InputFailedError, match="score is NaN"):
        answer(CLASSES, {"input": "a"}, [[0.0, float("nan"), 1.0]])
    with pytest.raises(InternalError, match="different labels"):
        answer(CLASSES, {"input": "a"}, [[0.0, 1.0]])


@pytest.mark.parametrize(
    ("dialect", "body"),
    [(SCORES, {"text_1": "q", "text_2": "a"}), (CLASSES, {"input": "a"})],
    ids=["score", "classify"],
)
def test_how_texts_are_cut_and_what_was_cut(dialect: BaseDialect, body: dict[str, Any]) -> None:
    """Fields of TEI and vLLM say how; an answer has the indices of the inputs that were truncated, if there are any."""
    for fields, truncate in (
        ({"truncate": False}, "no"),
        ({"truncation_direction": "left"}, "left"),
        ({"truncation_side": "left"}, "left"),
        ({"truncate": True}, "right"),
    ):
        assert parse(dialect, body | fields).options.truncate == truncate
    request = parse(dialect, body | {"raw_scores": True})._replace(labels=LABELS._replace(names=("a",)))
    assert request.ranking.raw
    vectors = Vectors("", 0, 1, 1, np.asarray([1.0], dtype="<f4").tobytes())
    for truncated in ([0], []):
        result = InferenceResult([vectors], tokens=9, truncated=truncated)
        usage = json.loads(dialect.encode_result(request, result))["usage"]
        assert usage.get("truncated") == (truncated or None)


@pytest.mark.parametrize(("priority", "lane"), [(-5, INTERACTIVE), (0, INTERACTIVE), (1, BULK), ("bulk", BULK)])
def test_a_lower_priority_is_sooner(priority: object, lane: int) -> None:
    """As in vLLM; names are Redbatch's own."""
    assert parse(SCORES, {"text_1": "q", "text_2": "a", "priority": priority}).lane == lane


@pytest.mark.parametrize(
    ("dialect", "body", "message"),
    [
        (SCORES, {"text_1": ["q", "r"], "text_2": ["a", "b", "c"]}, "Input lengths must be either 1:1, 1:N or N:N"),
        (SCORES, {"text_1": ["q", "r"], "text_2": ["a"]}, "Input lengths must be either 1:1, 1:N or N:N"),
        (SCORES, {"text_1": [], "text_2": ["a"]}, "At least one text element must be given"),
        (SCORES, {"text_1": "q", "text_2": []}, "At least one text_pair element must be given"),
        (SCORES, {"text_1": "q"}, "Send the texts of pairs in queries and documents"),
        (SCORES, {"text_1": "q", "text_2": 5}, "text_2: send a text or a list of texts."),
        (SCORES, {"text_1": "q", "text_2": ["a"] * 5}, "text_2: 5 inputs are over the limit of 4"),
        (CLASSES, {"input": ["a"] * 5}, "input: 5 inputs are over the limit of 4"),
        (CLASSES, {}, "input: send a text"),
        (CLASSES, {"input": "a", "use_activation": 1}, "use_activation: send true or false."),
        (CLASSES, {"input": "a", "on_error": "null"}, "on_error: this route has all results or an error: POST /jobs"),
        (
            SCORES,
            {"text_1": "a", "text_2": "b", "on_error": "null"},
            "on_error: this route has all results or an error",
        ),
        (
            SCORES,
            {"text_1": "a", "text_2": "b", "chat_template_kwargs": {"enable_thinking": False}},
            "chat_template_kwargs: send an instruction in it",
        ),
        (CLASSES, {"input": "a", "add_special_tokens": False}, "add_special_tokens: texts always have special tokens"),
        (CLASSES, {"input": "a", "softmax": False}, "softmax: it was removed; send use_activation instead."),
        (
            SCORES,
            {"text_1": "a", "text_2": "b", "normalize": True},
            "normalize: it was removed; send use_activation instead.",
        ),
    ],
)
def test_the_errors_of_vllms_bodies(dialect: BaseDialect, body: dict[str, Any], message: str) -> None:
    """A 400 in OpenAI's format."""
    status, found = error(dialect, body)
    assert (status, found["error"]["type"]) == (400, "invalid_request_error")
    assert found["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"inputs": ["a", "b", "c"]}, 422, "Validation", "inputs: send a text, a list of one text"),
        ({"inputs": [["a"], "b"]}, 422, "Validation", "inputs: send a text, a list of one text"),
        ({"inputs": []}, 422, "Validation", "inputs: send a text, a list of one text"),
        ({}, 422, "Validation", "inputs: send a text, a list of one text"),
        ({"inputs": ""}, 400, "Empty", "Input validation error: `inputs` cannot be empty"),
        ({"inputs": [["a"], ["", ""]]}, 400, "Empty", "Input validation error: `inputs` cannot be empty"),
        ({"inputs": [["a"]] * 5}, 422, "Validation", "batch size 5 > maximum allowed batch size 4"),
    ],
)
def test_the_errors_of_teis_bodies(body: dict[str, Any], status: int, kind: str, message: str) -> None:
    """In TEI's words, where it has some."""
    found, answer = error(PREDICT, body)
    assert (found, answer["error_type"]) == (status, kind)
    assert answer["error"].startswith(message)


def test_labels_whose_scores_are_alike_are_in_the_order_of_their_logits() -> None:
    """Several labels may have 1.0, if a text may have several: the one with the highest logit is still the first."""
    labels, logits = Labels(("no", "maybe", "yes"), "sigmoid"), [[17.5, -1.0, 25.0]]
    assert answer(CLASSES, {"input": "a"}, logits, labels)["data"][0]["label"] == "yes"
    assert [each["label"] for each in answer(PREDICT, {"inputs": "a"}, logits, labels)] == ["yes", "no", "maybe"]


def test_teis_default_route_is_that_of_the_model() -> None:
    """A reranker has labels too, but ranks here; a classifier is named by the header alone, as on all routes of TEI."""
    default = Default("/invocations")
    kinds = [(op, type(each), each.route) for op, each in default.for_ops(b'{"inputs": "a"}')]
    assert kinds == [
        (EMBED_SPARSE, EmbedSparse, "/invocations"),
        (SCORE, TeiRerank, "/invocations"),
        (CLASSIFY, DefaultPredict, "/invocations"),
    ]
    request = parse(DefaultPredict("/"), {"inputs": ["a", "b"], "model": "m"}, {"x-model": "n"})
    assert (request.inputs, request.queries, request.model, request.op) == (("b",), ("a",), "n", CLASSIFY)


def test_the_model_decides_whose_body_it_is() -> None:
    """A body with `inputs` may be TEI's, if the model is a classifier; `input` is always Redbatch's own."""
    dialect = Predict("/v1/predict")
    ((op, other),) = dialect.for_ops(b'{"inputs": "a"}')
    assert op == CLASSIFY
    assert isinstance(other, TeiPredict)
    assert other.route == "/v1/predict"
    assert not dialect.for_ops(b'{"input": 7}')
    assert dialect.model_of(b'{"inputs": [1], "model": "m"}', {"x-model": "n"}) == "m"
    assert dialect.model_of(b'{"inputs": [1]}', {"x-model": "n"}) == "n"
    status, encoded = other.encode_error(UnsupportedOperationError.of(CLASSIFY, "It offers: embed."), "")
    assert (status, json.loads(encoded)["error"]) == (
        424,
        "Backend error: Model is not a classifier model. It offers: embed.",
    )
