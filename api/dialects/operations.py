"""The OpenAPI descriptions of the routes whose bodies are parsed by hand: FastAPI cannot see their models. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from api.dialects.base import BaseDialect
from api.dialects.example_errors import (
    INFO_ERRORS,
    KEY_ERRORS,
    NATIVE_ERRORS,
    NO_SUCH_MODEL,
    OPENAI_ERRORS,
    PREDICT_ERRORS,
    TEI_DEFAULT_ERRORS,
    TEI_ERRORS,
    UNHEALTHY,
)
from api.dialects.headers import JSON
from api.dialects.native import BatchBody, EmbedBody, Native
from api.dialects.openai import EmbeddingsBody, OpenAI
from api.dialects.operation_headers import ANSWER_HEADERS, HEADERS, MODEL_PARAMETER
from api.dialects.predict import BINARY_TYPES, PredictBody
from api.dialects.ranking_models import LabelScores, RankedTexts
from api.dialects.report_models import Health
from api.dialects.response_models import (
    EXAMPLE_ID,
    NULL,
    AcceptedJob,
    EmbedAnswer,
    EmbeddingsAnswer,
    EmbedManyAnswer,
    ErrorAnswer,
    OpenAIErrorAnswer,
    PredictAnswer,
    PredictManyAnswer,
    Similarities,
    SparseVectors,
    TeiErrorAnswer,
    Texts,
    Tokens,
    TokenVectors,
    Vectors,
    replace_values,
)
from api.dialects.schemas import Answers, Schema, body_schema, without_models
from api.dialects.tei import DecodeBody, Embed, EmbedAllBody, SimilarityBody, TeiBody, TokenizeBody
from api.dialects.tei_predict import TeiPredictBody
from api.dialects.tei_rerank import TeiRerankBody
from shared.errors import RedbatchError

TAG_EMBEDDINGS, TAG_RERANKING, TAG_OPENAI, TAG_TEI = "Embeddings", "Reranking", "OpenAI", "TEI"
TAG_COHERE, TAG_JOBS, TAG_OPERATIONS = "Cohere", "Jobs", "Operations"
TAGS: list[dict[str, Any]] = [
    {"name": TAG_EMBEDDINGS, "description": "Redbatch's own routes: vectors of texts, and outputs of your function"},
    {"name": TAG_RERANKING, "description": "Scores of texts for a query, for clients of Cohere, Jina, vLLM and TEI"},
    {"name": TAG_OPENAI, "description": "For OpenAI's clients"},
    {"name": TAG_TEI, "description": "For clients of Hugging Face's Text Embeddings Inference"},
    {"name": TAG_COHERE, "description": "For Cohere's clients"},
    {"name": TAG_JOBS, "description": "Work that is submitted now and answered later"},
    {
        "name": TAG_OPERATIONS,
        "description": "For probes, people and finance; those with a lock need a key of the scope admin",
    },
]
"""The groups of routes, in the order in which a page shows them."""


class Operation(NamedTuple):
    """The description of one route: a summary, the request, the answers by status, and its group (see TAGS)."""

    summary: str
    request: dict[str, Any]
    answers: Answers
    tag: str = TAG_EMBEDDINGS

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of FastAPI's decorator of the route."""
        return {"summary": self.summary, "responses": without_models(self.answers), "openapi_extra": self.request}


BEARER = "bearer"
SECURITY: dict[str, Schema] = {
    BEARER: {"type": "http", "scheme": "bearer", "description": "An API key that `redbatch keys create` made."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same key, in a header."},
}
"""How to send an API key, where the gateway requires one."""

IN_ORDER = "Vectors in the order of the inputs; those of the examples are shortened to three numbers"


def content(schema: Schema) -> dict[str, Any]:
    """Returns the OpenAPI description of a JSON body with this schema."""
    return {"content": {JSON: {"schema": schema}}}


ERROR_DESCRIPTIONS = {
    400: "Malformed JSON, a missing or empty text, or a wrong type",
    401: "Missing or invalid API key",
    403: "The key lacks the required scope, or without keys the host of the URL is a name of another site",
    404: "No worker serves this model",
    408: "The body did not arrive in time",
    409: "No worker has the revision that the request asks for",
    413: "Body, number of inputs or length of an input over the limit",
    415: "The body is not JSON, nor of another type that the route takes",
    422: "Malformed JSON, a wrong type, or the number or length of inputs over the limit",
    424: "The model failed on an input, or does not offer this",
    429: "Queue full, rate limited, or Redis low on memory; `Retry-After` says when to retry",
    500: "The model failed on an input",
    503: "Redis is unreachable, or no worker has been alive for a while",
    504: "The deadline passed",
}
_KEY_REUSED = "With Prefer: respond-async: the Idempotency-Key belongs to another job"


class ErrorFormat(NamedTuple):
    """A format of errors: its name, the dialect that encodes them, and the model of their bodies."""

    name: str
    dialect: BaseDialect
    model: Any


Errors = Mapping[ErrorFormat, Sequence[RedbatchError]]
"""The errors of a route in each format that it answers in."""

NATIVE = ErrorFormat("Redbatch", Native(), ErrorAnswer)
OPENAI = ErrorFormat("OpenAI", OpenAI(), OpenAIErrorAnswer)
TEI = ErrorFormat("TEI", Embed("/"), TeiErrorAnswer)


def error_answers(errors: Errors, descriptions: dict[int, str] | None = None) -> Answers:
    """Returns the descriptions of errors by status, each error as an example that has the name of its code.

    Of two errors with the same status and code, the last is shown. `descriptions` of statuses take precedence over
    ERROR_DESCRIPTIONS.
    """
    texts = ERROR_DESCRIPTIONS | (descriptions or {})
    models: dict[int, Any] = {}
    shown: dict[int, dict[str, Any]] = {}
    for each, error in ((each, error) for each, group in errors.items() for error in group):
        status, body = each.dialect.encode_error(error, EXAMPLE_ID)
        models[status] = models.get(status, each.model) | each.model
        name = error.code if len(errors) == 1 else f"{each.name}: {error.code}"
        shown.setdefault(status, {})[name] = {"value": replace_values(orjson.loads(body), None, NULL)}
    return {
        status: {"description": texts[status], "model": model, "content": {JSON: {"examples": shown[status]}}}
        for status, model in sorted(models.items())
    }


def embedding_answers(model: object, description: str, errors: Errors) -> Answers:
    """Returns the descriptions of the answers of a route whose requests may become jobs."""
    return {
        200: {"description": description, "model": model, "headers": ANSWER_HEADERS},
        202: {"description": "With Prefer: respond-async: accepted as a job", "model": AcceptedJob},
        **error_answers(errors, {} if TEI in errors else {422: _KEY_REUSED}),
    }


def request_of(schema: Schema, headers: Sequence[Schema] = (*HEADERS, MODEL_PARAMETER)) -> dict[str, Any]:
    """Returns the OpenAPI description of a request with this body and these headers."""
    return {"requestBody": {"required": True, **content(schema)}, "parameters": list(headers)}


def _with_binary_bodies(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of a request whose body may also be one binary input."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    request["requestBody"]["content"] |= dict.fromkeys(BINARY_TYPES, binary)
    return request


def _tei(summary: str, body: Schema, model: object, description: str) -> Operation:
    return Operation(summary, request_of(body), embedding_answers(model, description, {TEI: TEI_ERRORS}), TAG_TEI)


_TEI_BODY, _PREDICT_BODY = body_schema(TeiBody, ["inputs"]), body_schema(TeiPredictBody, ["inputs"])
_TEI_DEFAULT = Operation(
    "Embed, or rank or classify texts if the model is for that, for TEI's clients",
    request_of({"anyOf": [_TEI_BODY, body_schema(TeiRerankBody), _PREDICT_BODY]}),
    embedding_answers(
        Vectors | SparseVectors | RankedTexts | LabelScores,
        f"{IN_ORDER}; or ranked texts, or labels with their scores",
        {TEI: TEI_DEFAULT_ERRORS},
    ),
    TAG_TEI,
)
_OPENAI = Operation(
    "Embed, for OpenAI's clients",
    request_of(body_schema(EmbeddingsBody, ["input"]), HEADERS),
    embedding_answers(EmbeddingsAnswer, f"{IN_ORDER}, as numbers or as float32 in base64", {OPENAI: OPENAI_ERRORS}),
    TAG_OPENAI,
)
_PREDICT = Operation(
    "Call a user-defined function, or classify texts if the model is a classifier, for TEI's clients",
    _with_binary_bodies(request_of({"anyOf": [body_schema(PredictBody), _PREDICT_BODY]})),
    embedding_answers(
        PredictAnswer | PredictManyAnswer | LabelScores,
        "Outputs in the order of the inputs, or all labels with their scores",
        {NATIVE: PREDICT_ERRORS, TEI: TEI_ERRORS},
    ),
)

_INPUTS_BODY = body_schema(EmbedAllBody, ["inputs"])

OPERATIONS: dict[str, Operation] = {
    "/embed": Operation(
        "Embed one text or several, also for TEI's clients",
        request_of({"anyOf": [body_schema(EmbedBody), _TEI_BODY]}),
        embedding_answers(EmbedAnswer | EmbedManyAnswer | Vectors, IN_ORDER, {NATIVE: NATIVE_ERRORS, TEI: TEI_ERRORS}),
    ),
    "/batch_embed": Operation(
        "Embed several texts",
        request_of(body_schema(BatchBody)),
        embedding_answers(EmbedManyAnswer, IN_ORDER, {NATIVE: NATIVE_ERRORS}),
    ),
    "/predict": _PREDICT,
    "/v1/predict": _PREDICT,
    "/v1/embeddings": _OPENAI,
    "/embeddings": _OPENAI,
    "/": _TEI_DEFAULT,
    "/invocations": _TEI_DEFAULT,
    "/embed_all": _tei("Embed each token", _INPUTS_BODY, TokenVectors, "For each input the vectors of its tokens"),
    "/embed_sparse": _tei(
        "Embed as weights of tokens of the vocabulary, with a sparse encoder (SPLADE) or a hybrid model",
        _INPUTS_BODY,
        SparseVectors,
        "For each input the tokens with a weight, in the order of their ids",
    ),
    "/similarity": _tei(
        "Similarity of sentences to a source sentence",
        body_schema(SimilarityBody),
        Similarities,
        "The cosine of each sentence's vector with the source's",
    ),
    "/tokenize": _tei("Tokenize texts", body_schema(TokenizeBody, ["inputs"]), Tokens, "For each text its tokens"),
    "/decode": _tei("Decode token ids", body_schema(DecodeBody, ["ids"]), Texts, "A text for each list of ids"),
}
"""By route."""

_WRONG_KEYS = "Too many wrong keys came from this address; `Retry-After` says when to retry"
_KEY_UNCHECKED = "Redis is unreachable, so the key cannot be checked"
_MODELS_TEXTS = {429: _WRONG_KEYS, 503: _KEY_UNCHECKED}
INFO_ANSWERS = error_answers({TEI: INFO_ERRORS}, {422: "There are several models, and none is named", 429: _WRONG_KEYS})
UNHEALTHY_ANSWERS = error_answers({TEI: [UNHEALTHY]}, {503: "Not ready"})
MODELS_ANSWERS = error_answers({OPENAI: KEY_ERRORS}, _MODELS_TEXTS)
MODEL_ANSWERS = error_answers({OPENAI: [*KEY_ERRORS, NO_SUCH_MODEL]}, _MODELS_TEXTS)


def unhealthy_answers(example: Health) -> Answers:
    """Returns the description of the answer of a probe that fails."""
    shown = {"example": example.model_dump(exclude_defaults=True)}
    return {503: {"description": "Not ready; the body says what is missing", "model": Health, "content": {JSON: shown}}}


MODEL = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The model's id.",
}
EXCLUDE = {
    "name": "exclude",
    "in": "query",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "Conditions to ignore: redis, worker or draining.",
}
