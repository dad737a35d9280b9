"""The rerank dialects: which one a body is in, its fields, the answer of each, and its errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.base import BaseDialect
from api.dialects.ranking import sigmoid
from api.dialects.request import InferenceResult, Ranking, Stamp
from api.dialects.rerank import CohereRerank, Rerank, VoyageRerank
from api.dialects.tei import Default, Embed
from api.dialects.tei_rerank import TeiRerank
from api.settings import GatewaySettings
from shared.codec import decode_body, encode_body
from shared.errors import (
    InputFailedError,
    InvalidRequestError,
    ModelNotFoundError,
    QueueFullError,
    RedbatchError,
    RequestError,
    UnauthorizedError,
    UnsupportedOperationError,
)
from shared.keys import BULK, INTERACTIVE
from shared.messages import CLASSIFY, EMBED, EMBED_ALL, EMBED_SPARSE, SCORE, Body, Options, TooLong, Vectors
from tests.unit.api.dialects.test_native import headers, jsonish, values

LIMITS = GatewaySettings(max_inputs=4, max_input_chars=50).requests
TEI, RERANK, COHERE = TeiRerank("/rerank"), Rerank("/rerank"), CohereRerank()
VOYAGE = VoyageRerank()
DIALECTS = (TEI, RERANK, COHERE, VOYAGE)
NAMES = (
    *("query", "texts", "documents", "model", "top_n", "return_documents", "raw_scores", "truncate", "priority"),
    *("top_k", "truncation"),
)
TEXTS = ("b", "a", "c")
LOGITS = (-2.0, 3.0, 0.5)
DOCUMENTS: dict[str, Any] = {"model": "m", "query": "q", "documents": list(TEXTS)}

bodies = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values))


def result_of(*logits: float) -> InferenceResult:
    """Returns the result of a request whose texts have these logits, in two entries if there are several."""
    parts = [logits[:2], logits[2:]]
    vectors = [
        Vectors("", 2 * i, len(part), 1, np.asarray(part, dtype="<f4").tobytes())
        for i, part in enumerate(parts)
        if part
    ]
    return InferenceResult(vectors, tokens=21)


def answer(dialect: BaseDialect, body: dict[str, Any], *logits: float) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the answer to a body whose texts get these logits."""
    request = dialect.parse(json.dumps(body).encode(), {}, LIMITS)
    return json.loads(dialect.encode_result(request._replace(stamp=Stamp("r-1", 5)), result_of(*(logits or LOGITS))))


def error(dialect: BaseDialect, body: dict[str, Any] | bytes) -> tuple[int, Any]:
    """Returns status and body of the error for a request body."""
    with pytest.raises(RequestError) as caught:
        dialect.parse(body if isinstance(body, bytes) else json.dumps(body).encode(), {}, LIMITS)
    status, encoded = dialect.encode_error(caught.value, "r-1")
    return status, json.loads(encoded)


def encoded(dialect: BaseDialect, fault: RedbatchError) -> tuple[int, Any]:
    """Returns status and body of an error that is raised later."""
    status, encoded = dialect.encode_error(fault, "r-1")
    return status, json.loads(encoded)


@given(st.sampled_from(DIALECTS), jsonish | bodies.map(lambda value: json.dumps(value).encode()), headers, headers)
def test_any_bytes_give_a_request_or_a_request_error(
    dialect: BaseDialect, data: bytes, timeout: str | None, priority: str | None
) -> None:
    """Any bytes raise only RequestError, and an accepted request passes through the codec unchanged."""
    given = {"x-timeout-ms": timeout, "x-priority": priority}
    try:
        chosen = dialect.for_body(data)
        request = chosen.parse(data, {name: value for name, value in given.items() if value is not None}, LIMITS)
    except RequestError:
        return
    assert 1 <= len(request.inputs) <= LIMITS.max_inputs
    assert request.options.query is not None
    try:
        body = encode_body(Body(SCORE, request.inputs, request.options))
    except UnicodeEncodeError:  # a lone surrogate, which the dispatcher reports
        return
    assert decode_body(body) == Body(SCORE, request.inputs, request.options)


@pytest.mark.parametrize(
    ("dialect", "fields", "expected"),
    [
        (RERANK, {"query": "q", "texts": ["a"]}, TeiRerank),
        (RERANK, {"query": "q", "documents": ["a"]}, Rerank),
        (RERANK, {"query": "documents", "texts": ["texts"]}, TeiRerank),
        (RERANK, {"query": '"texts": 1', "documents": ['"texts"']}, Rerank),
        (RERANK, {"query": "q", "documents": [{"text": "a", "texts": 1}]}, Rerank),
        (RERANK, {"query": "q"}, Rerank),
        (RERANK, {"query": "q", "documents": ["a"], "top_k": None, "truncation": True}, VoyageRerank),
        (RERANK, {"query": "q", "documents": ["a"], "top_k": 1}, VoyageRerank),
        (RERANK, {"query": "top_k", "documents": ["truncation", '"top_k"']}, Rerank),
        (RERANK, {"query": "q", "texts": ["a"], "top_k": 1}, TeiRerank),
        (COHERE, {"query": "q", "documents": ["a"], "top_k": 1}, CohereRerank),
        (COHERE, {"query": "q", "texts": ["a"]}, CohereRerank),
        (Default("/"), {"query": "q", "texts": ["a"]}, TeiRerank),
        (Default("/"), {"inputs": "a"}, Default),
        (Default("/"), {"inputs": '"texts"'}, Default),
        (Embed("/embed"), {"query": "q", "texts": ["a"]}, Embed),
    ],
)
def test_the_body_says_which_dialect_it_is_in(
    dialect: BaseDialect, fields: object, expected: type[BaseDialect]
) -> None:
    """By a field, which no text can be taken for."""
    chosen = dialect.for_body(json.dumps(fields).encode())
    assert (type(chosen), chosen.route) == (expected, dialect.route)


def test_a_body_of_two_dialects_or_of_none_is_refused() -> None:
    """The error names both fields."""
    with pytest.raises(InvalidRequestError, match=r"^Send texts or documents: one of them\.$"):
        RERANK.for_body(b'{"query": "q", "texts": ["a"], "documents": ["a"]}')
    status, body = error(RERANK, {"query": "q"})
    assert (status, body["error"]["param"]) == (400, "documents")
    assert "TEI's clients send texts" in body["message"]


def test_the_answer_for_teis_clients() -> None:
    """A bare array, the best first: scores from 0 to 1, or logits; with the texts, or the best alone, if requested."""
    body = {"query": "q", "texts": list(TEXTS)}
    assert [(each["index"], sorted(each)) for each in answer(TEI, body)] == [(i, ["index", "score"]) for i in (1, 2, 0)]
    assert [each["score"] for each in answer(TEI, body)] == pytest.approx([0.952574, 0.622459, 0.119203], abs=1e-6)
    more = answer(TEI, body | {"raw_scores": True, "return_text": True, "top_n": 2})
    assert more == [{"index": 1, "text": "a", "score": 3.0}, {"index": 2, "text": "c", "score": 0.5}]


def test_the_answer_for_clients_of_cohere_jina_and_vllm() -> None:
    """One object with the fields that each of them reads; a document is an object, or absent."""
    found = answer(RERANK, DOCUMENTS | {"use_activation": False, "top_n": 2})
    assert found == {
        "id": "r-1",
        "object": "list",
        "model": "m",
        "usage": {"prompt_tokens": 21, "total_tokens": 21},
        "results": [{"index": 1, "relevance_score": 3.0}, {"index": 2, "relevance_score": 0.5}],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1, "total_tokens": 21},
            "tokens": {"input_tokens": 21},
        },
    }
    objects = {"documents": [{"text": each, "id": 7} for each in TEXTS], "query": {"text": "q"}, "top_n": 0}
    found = answer(RERANK, DOCUMENTS | objects | {"return_documents": True, "rank_fields": ["text"]})
    assert [each["document"] for each in found["results"]] == [{"text": text} for text in ("a", "c", "b")]
    assert found["results"][0]["relevance_score"] == pytest.approx(0.952574, abs=1e-6)


def test_the_answer_for_clients_of_coheres_second_version() -> None:
    """It has no usage; fields of the first version and of the future are ignored."""
    found = answer(COHERE, DOCUMENTS | {"max_tokens_per_doc": 4096, "priority": 0, "top_n": 1, "new": 1})
    assert found == {
        "id": "r-1",
        "results": [{"index": 1, "relevance_score": pytest.approx(0.952574, abs=1e-6)}],
        "meta": {
            "api_version": {"version": "2", "is_experimental": False},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 21},
        },
    }


def test_the_answer_for_clients_of_voyage() -> None:
    """It has `data` in place of `results`, and a document is a text."""
    body = {"query": "q", "documents": list(TEXTS), "model": "m", "top_k": 2, "truncation": True}
    found = answer(VOYAGE, body | {"return_documents": True})
    assert found == {
        "object": "list",
        "data": [
            {"index": 1, "relevance_score": pytest.approx(0.952574, abs=1e-6), "document": "a"},
            {"index": 2, "relevance_score": pytest.approx(0.622459, abs=1e-6), "document": "c"},
        ],
        "model": "m",
        "usage": {"total_tokens": 21},
    }
    assert [sorted(each) for each in answer(VOYAGE, body)["data"]] == [["index", "relevance_score"]] * 2
    assert len(answer(VOYAGE, body | {"top_k": None})["data"]) == 3
    assert len(answer(VOYAGE, body | {"top_k": None, "top_n": 1})["data"]) == 1


def test_the_errors_for_clients_of_voyage() -> None:
    """They read `detail`."""
    for fields, message in (
        ({"top_n": 1, "top_k": 1}, "Send top_n or top_k: one of them."),
        ({"top_k": 0}, "top_k: send a whole number of at least 1."),
        ({"truncation": "no"}, "truncation: send true or false."),
    ):
        status, body = error(VOYAGE, DOCUMENTS | fields)
        assert (status, body["detail"]) == (400, message)


@pytest.mark.parametrize(
    ("dialect", "fields", "options"),
    [
        (VOYAGE, {"documents": ["a"], "truncation": False}, Options(query="q", truncate="no")),
        (VOYAGE, {"documents": ["a"], "truncation": True}, Options(query="q")),
        (TEI, {"texts": ["a"]}, Options(query="q")),
        (TEI, {"texts": ["a"], "truncate": False}, Options(query="q", truncate="no")),
        (TEI, {"texts": ["a"], "truncate": None, "truncation_direction": "Left"}, Options(query="q", truncate="left")),
        (TEI, {"texts": ["a"], "prompt_name": "p"}, Options("p", query="q")),
        (RERANK, {"documents": ["a"], "truncation_side": "left"}, Options(query="q", truncate="left")),
        (RERANK, {"documents": ["a"], "truncation_direction": "left"}, Options(query="q", truncate="left")),
        (RERANK, {"documents": ["a"], "truncate": False}, Options(query="q", truncate="no")),
        (COHERE, {"documents": ["a"], "model": "m", "truncate": False}, Options(query="q", truncate="no")),
        (VOYAGE, {"documents": ["a"], "truncate": False, "top_k": 1}, Options(query="q", truncate="no")),
        (RERANK, {"documents": "a"}, Options(query="q")),
        (
            RERANK,
            {"documents": ["a"], "chat_template_kwargs": {"instruction": "i"}},
            Options(query="q", instruction="i"),
        ),
        (COHERE, {"documents": ["a"], "model": "m"}, Options(query="q")),
        (
            COHERE,
            {"documents": ["a"], "model": "m", "max_tokens_per_doc": 9},
            Options(query="q", max_document_tokens=9),
        ),
        (RERANK, {"documents": ["a"], "max_tokens_per_query": 9}, Options(query="q", max_query_tokens=9)),
        (RERANK, {"documents": ["a"], "max_tokens_per_query": 0, "max_tokens_per_doc": 0}, Options(query="q")),
        (RERANK, {"documents": ["a"], "truncate_prompt_tokens": 9}, Options(query="q", max_tokens=9)),
        (RERANK, {"documents": ["a"], "truncate_prompt_tokens": -1}, Options(query="q")),
        (RERANK, {"documents": ["a"], "instruction": "i"}, Options(query="q", instruction="i")),
        (RERANK, {"documents": ["a"], "instruct": "i"}, Options(query="q", instruction="i")),
        (RERANK, {"documents": ["a"], "instruction": ""}, Options(query="q")),
    ],
)
def test_the_options_of_a_body_reach_the_model(dialect: BaseDialect, fields: dict[str, Any], options: Options) -> None:
    """The query and how a long pair is cut."""
    request = dialect.parse(json.dumps({"query": "q"} | fields).encode(), {}, LIMITS)
    assert (request.op, request.inputs, request.options) == (SCORE, ("a",), options)


@pytest.mark.parametrize(
    "fields", [{"truncate_prompt_tokens": 0}, {"max_tokens_per_doc": -1}, {"instruction": "x" * 4_097}]
)
def test_options_out_of_their_bounds_are_refused(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequestError, match=f"^{next(iter(fields))}: "):
        RERANK.parse(json.dumps(DOCUMENTS | fields).encode(), {}, LIMITS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"truncation_side": "left", "truncation_direction": "right"},
            "truncation_direction: it contradicts truncation_side",
        ),
        ({"use_activation": True, "raw_scores": True}, "raw_scores: it contradicts use_activation"),
        ({"instruction": "i", "instruct": "j"}, "instruction: it contradicts instruct or chat_template_kwargs"),
        (
            {"instruction": "i", "chat_template_kwargs": {"instruction": "j"}},
            "instruction: it contradicts instruct or chat_template_kwargs",
        ),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs: send an instruction in it"),
        ({"chat_template_kwargs": {"instruction": 5}}, "chat_template_kwargs.instruction: send a text."),
        ({"normalize": False}, "normalize: it was removed; send use_activation instead."),
        ({"softmax": True}, "softmax: it was removed; send use_activation instead."),
        ({"add_special_tokens": False}, "add_special_tokens: texts always have special tokens here."),
        ({"on_error": "null"}, "on_error: this route has all results or an error: POST /jobs"),
    ],
)
def test_what_would_give_other_scores_is_not_ignored(fields: dict[str, Any], message: str) -> None:
    """Fields that are not served, or that contradict each other, are refused by name."""
    invalid = 400 if "contradicts" in message else 422  # of a field alone, for Cohere's clients
    for dialect, status in ((RERANK, 400), (COHERE, invalid), (VOYAGE, 400)):
        found, body = error(dialect, DOCUMENTS | fields)
        assert (found, body["message"][: len(message)]) == (status, message)
    assert error(VOYAGE, DOCUMENTS | {"truncate": True, "truncation": False})[0] == 400


def test_logits_have_two_names() -> None:
    """That of vLLM, and that of TEI and Infinity; both may be there if they agree."""
    for fields in ({"use_activation": False}, {"raw_scores": True}, {"raw_scores": True, "use_activation": False}):
        assert answer(RERANK, DOCUMENTS | fields)["results"][0]["relevance_score"] == 3.0
    assert answer(RERANK, DOCUMENTS | {"raw_scores": False})["results"][0]["relevance_score"] < 1


def test_an_answer_says_which_documents_were_truncated() -> None:
    """In its usage, and for clients of Cohere's second version in a warning; absent if there are none."""
    request = RERANK.parse(json.dumps(DOCUMENTS).encode(), {}, LIMITS)
    for truncated in ([0, 2], []):
        result = result_of(*LOGITS)._replace(truncated=truncated)
        for dialect in (RERANK, VOYAGE):
            usage = json.loads(dialect.encode_result(request, result))["usage"]
            assert usage.get("truncated", []) == truncated
            assert ("truncated" in usage) == bool(truncated)
        meta = json.loads(COHERE.encode_result(request, result))["meta"]
        assert meta.get("warnings") == (["Truncated to the maximum length: 0, 2."] if truncated else None)


@pytest.mark.parametrize(
    ("priority", "header", "lane"),
    [
        (0, None, INTERACTIVE),
        (1, None, BULK),
        (999, "interactive", BULK),
        ("bulk", None, BULK),
        (None, "bulk", BULK),
        (None, None, INTERACTIVE),
    ],
)
def test_a_lower_priority_is_sooner(priority: int | str | None, header: str | None, lane: int) -> None:
    """Cohere's 0 is for users who wait; names are Redbatch's own; a field goes before the header."""
    given = {} if header is None else {"x-priority": header}
    for dialect in (RERANK, COHERE):
        body = json.dumps(DOCUMENTS | {"priority": priority}).encode()
        assert dialect.parse(body, given, LIMITS).lane == lane


def test_a_priority_may_be_any_number_for_clients_of_vllm() -> None:
    """In vLLM a number below 0 is even sooner; Cohere's are from 0 to 999."""
    for priority, lane in ((-1, INTERACTIVE), (1_000, BULK)):
        body = DOCUMENTS | {"priority": priority}
        assert RERANK.parse(json.dumps(body).encode(), {}, LIMITS).lane == lane
        assert error(COHERE, body)[0] == 422


def test_equal_scores_are_in_the_order_of_the_texts() -> None:
    """So the answer to a request does not change by chance."""
    found = answer(TEI, {"query": "q", "texts": ["a", "b", "c"]}, 1.0, 1.0, 2.0)
    assert [each["index"] for each in found] == [2, 0, 1]


def test_texts_whose_scores_are_alike_are_in_the_order_of_their_logits() -> None:
    """The sigmoid of each logit above 17 is 1.0 in single precision: the better text is still the first."""
    found = answer(TEI, {"query": "q", "texts": ["a", "b"], "top_n": 1}, 17.5, 25.0)
    assert found == [{"index": 1, "score": 1.0}]
    found = answer(RERANK, {"query": "q", "documents": ["a", "b"]}, 17.5, 25.0)
    assert [each["index"] for each in found["results"]] == [1, 0]


def test_a_score_is_never_out_of_range() -> None:
    """Of large logits as well, without a warning of an overflow."""
    with np.errstate(over="raise", invalid="raise"):
        scores = sigmoid(np.asarray([-1e4, -50.0, 0.0, 50.0, 1e4], dtype=np.float32))
    assert scores.tolist() == [0.0, pytest.approx(1.92875e-22, rel=1e-5, abs=0), 0.5, 1.0, 1.0]


TEI_BODY: dict[str, Any] = {"query": "q", "texts": ["a"]}
TEI_ERRORS: list[tuple[dict[str, Any], int, str, str]] = [
    ({"texts": []}, 400, "Empty", "`texts` cannot be empty"),
    ({"query": "", "texts": ["a", ""]}, 400, "Empty", "Input validation error: `inputs` cannot be empty"),
    ({"texts": ["a"] * 5}, 422, "Validation", "batch size 5 > maximum allowed batch size 4"),
    ({"texts": "a"}, 422, "Validation", "texts: send a list."),
    ({"texts": ["a", 1]}, 422, "Validation", "texts[1]: send a text."),
    ({"query": 1}, 422, "Validation", "query: send a text."),
    ({"top_n": 0}, 422, "Validation", "top_n: send a whole number of at least 1."),
]


@pytest.mark.parametrize(("fields", "status", "kind", "message"), TEI_ERRORS)
def test_the_errors_of_tei_bodies(fields: dict[str, Any], status: int, kind: str, message: str) -> None:
    """In TEI's words, where it has some."""
    assert error(TEI, TEI_BODY | fields) == (status, {"error": message, "error_type": kind})


@pytest.mark.parametrize("fields", [{"query": ""}, {"texts": [""]}, {"texts": ["", "a"]}])
def test_one_text_of_a_pair_may_be_empty(fields: dict[str, Any]) -> None:
    """As TEI has it: only a pair of two empty texts is an error."""
    body = json.dumps(TEI_BODY | fields).encode()
    if fields == {"query": ""}:
        assert TEI.parse(body, {}, LIMITS).options.query == ""
    else:
        assert TEI.parse(body, {}, LIMITS).inputs == tuple(fields["texts"])


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        (
            UnsupportedOperationError.of(SCORE, "It offers: embed."),
            424,
            "Backend",
            "Backend error: model is not a re-ranker model. It offers: embed.",
        ),
        (
            UnsupportedOperationError.of(EMBED, "It offers: score."),
            424,
            "Backend",
            "Backend error: Model is not an embedding model. It offers: score.",
        ),
        (
            UnsupportedOperationError.of(EMBED_ALL, "It offers: embed_sparse.", (EMBED_SPARSE,)),
            424,
            "Backend",
            "Backend error: `embed_all` is not available for SPLADE models. It offers: embed_sparse.",
        ),
        (
            UnsupportedOperationError.of(CLASSIFY, "It offers: embed."),
            424,
            "Backend",
            "Backend error: Model is not a classifier model. It offers: embed.",
        ),
        (InputFailedError("The model failed."), 424, "Backend", "Backend error: The model failed."),
        (QueueFullError("Try again in 2 s."), 429, "Overloaded", "Model is overloaded. Try again in 2 s."),
        (ModelNotFoundError("There is no such model."), 404, "Validation", "There is no such model."),
        (UnauthorizedError("Send a key."), 401, "Validation", "Send a key."),
    ],
)
def test_teis_errors_of_requests_that_were_read(fault: RedbatchError, status: int, kind: str, message: str) -> None:
    """They begin with TEI's words; what Redbatch knows in addition follows."""
    assert encoded(TEI, fault) == (status, {"error": message, "error_type": kind})


def test_a_pair_that_is_too_long_is_reported_in_teis_words() -> None:
    """The worker reports both numbers; a text that looks like its message is no such report."""
    error = InvalidRequestError("Input 3: 405 tokens, and the maximum is 256: shorten it, or allow truncate.")
    assert encoded(TEI, error)[1]["error"] == error.message
    error.too_long = TooLong(405, 256)
    status, body = encoded(TEI, error)
    assert (status, body["error_type"]) == (422, "Validation")
    assert body["error"].startswith("Input validation error: `inputs` must have less than 256 tokens. Given: 405.")


def test_a_score_that_is_no_number_is_an_error() -> None:
    """JSON has none. The words are TEI's."""
    for logit in (float("nan"), float("inf")):
        request = TEI.parse(json.dumps(TEI_BODY).encode(), {}, LIMITS)
        with pytest.raises(InputFailedError) as caught:
            TEI.encode_result(request, result_of(logit))
        assert encoded(TEI, caught.value) == (424, {"error": "score is NaN", "error_type": "Backend"})


@pytest.mark.parametrize(
    ("fields", "statuses", "message"),
    [
        ({"documents": []}, (400, 400), "invalid request: list of documents must not be empty"),
        ({"documents": 5}, (400, 422), "documents: send a list of texts"),
        ({"documents": ["a", 1]}, (400, 422), 'documents[1]: send a text, or {"text": "..."}.'),
        ({"documents": [{"title": "a"}]}, (400, 422), 'documents[0]: send a text, or {"text": "..."}.'),
        ({"documents": ["a"] * 5}, (400, 400), "documents: 5 inputs are over the limit of 4"),
        ({"documents": ["a" * 51]}, (413, 400), "Input 0 has 51 characters, over the limit of 50"),
        ({"query": "a" * 51}, (413, 400), "query: it has 51 characters, over the limit of 50"),
        ({"query": ""}, (400, 422), "query: it is empty."),
        ({"query": None}, (400, 422), 'query: send a text, or {"text": "..."}.'),
        ({"top_n": -1}, (400, 422), "top_n: send a whole number of at least"),
        ({"top_n": "1"}, (400, 422), "top_n: send a whole number of at least"),
        ({"priority": 1.5}, (400, 422), "priority"),
    ],
)
def test_the_errors_of_bodies_with_documents(fields: dict[str, Any], statuses: tuple[int, int], message: str) -> None:
    """The status is 400; that of Cohere's second version 422, if a field is missing or invalid."""
    for dialect, status in zip((RERANK, COHERE), statuses, strict=True):
        found, body = error(dialect, DOCUMENTS | fields)
        assert (found, body["message"][: len(message)]) == (status, message)


def test_each_client_finds_the_message_of_an_error() -> None:
    """OpenAI's clients in `error`, Cohere's in `message`, Jina's in `detail`; Cohere's second version has an id."""
    fault = ModelNotFoundError("There is no such model.", param="model")
    openai = {"message": fault.message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    assert encoded(RERANK, fault) == (404, {"error": openai, "message": fault.message, "detail": fault.message})
    assert encoded(COHERE, fault) == (404, {"id": "r-1", "message": fault.message})
    assert encoded(COHERE, UnsupportedOperationError.of(SCORE, "No."))[0] == 400
    assert error(COHERE, b"{")[0] == 400
    assert error(COHERE, {"query": "q", "documents": ["a"]}) == (
        422,
        {"id": "r-1", "message": "model: it is missing."},
    )


def test_a_ranking_has_no_more_texts_than_there_are() -> None:
    """Open WebUI sends the number of documents as `top_n`."""
    assert len(answer(RERANK, DOCUMENTS | {"top_n": 100})["results"]) == 3
    assert RERANK.parse(json.dumps(DOCUMENTS).encode(), {}, LIMITS).ranking == Ranking()
