"""What the OpenAPI page says of the routes whose bodies are read by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from api.asked import MAX_TIMEOUT_MS
from api.native import BatchBody, EmbedBody
from api.openai import EmbeddingsBody
from api.tei import DecodeBody, EmbedAllBody, SimilarityBody, TeiBody, TokenizeBody
from shared.keys import LANES

JSON = "application/json"

Schema = dict[str, Any]
Answers = dict[int | str, dict[str, Any]]


class Page(NamedTuple):
    """What the page says of one route: in a few words, what may be sent, and what may come back."""

    summary: str
    request: dict[str, Any]
    answers: Answers


SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key that `redbatch keys create` made."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, in a header."},
}
"""How a key is sent, where the gateway asks for one."""

SCHEMAS: dict[str, Schema] = {}
"""By name, those that the page refers to."""

_REF = "#/components/schemas/"


def _named(name: str, schema: Schema) -> Schema:
    """Returns a reference to a schema that has this name from now on."""
    SCHEMAS[name] = schema
    return {"$ref": f"{_REF}{name}"}


def _content(schema: Schema) -> dict[str, Any]:
    return {"content": {JSON: {"schema": schema}}}


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    """Returns the schema of an object, all of whose properties are there unless some are named as `required`."""
    return {"type": "object", "required": list(properties) if required is None else required, "properties": properties}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_VECTOR = _list({"type": "number"})

_TOLD = {"code": _STRING, "message": _STRING, "request_id": _STRING}
_ERROR = _content(_named("Error", _object({"error": _object(_TOLD)})))
_OPENAI_TOLD = {"message": _STRING, "type": _STRING, "param": _or_null(_STRING), "code": _STRING}
_OPENAI_ERROR = _content(_named("OpenAIError", _object({"error": _object(_OPENAI_TOLD)})))
_TEI_KINDS = ["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
_TEI_TOLD = {"error": _STRING, "error_type": {"type": "string", "enum": _TEI_KINDS}}
_TEI_ERROR = _content(_named("TEIError", _object(_TEI_TOLD)))

_WHY = {
    400: "Malformed JSON, a missing or empty text, a wrong type",
    401: "No key, or none that opens",
    403: "The key is for something else",
    404: "No worker serves this model",
    408: "The body did not arrive in time",
    413: "Body, inputs or characters over the limit",
    415: "The body is not JSON",
    422: "Malformed JSON, a wrong type, or more inputs or longer ones than may be",
    424: "The model failed on an input",
    429: "Too much waits already, or Redis runs out of memory; `Retry-After` says when to come again",
    500: "The model failed on an input",
    503: "Redis is out of reach, or no worker has lived for a while",
    504: "The deadline passed",
}
_STATUSES = (400, 401, 403, 404, 408, 413, 415, 429, 500, 503, 504)
_TEI_STATUSES = (*_STATUSES, 422, 424)


def _answers(good: Schema, what: str, statuses: tuple[int, ...], error: dict[str, Any]) -> Answers:
    """Returns what may come back: this, or an error of this shape."""
    return {
        200: {"description": what, **_content(good)},
        **{each: {"description": _WHY[each], **error} for each in statuses},
    }


_HEADERS = [
    {
        "name": "X-Timeout-Ms",
        "in": "header",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "description": "Time for the answer.",
    },
    {
        "name": "X-Priority",
        "in": "header",
        "schema": {"type": "string", "enum": list(LANES)},
        "description": "Whether somebody waits for the answer.",
    },
    {
        "name": "X-Tenant",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "description": "For whom this counts, where the gateway asks for no keys.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Comes back, and stands in logs.",
    },
]


_MODEL_HEADER = {
    "name": "X-Model",
    "in": "header",
    "schema": {"type": "string"},
    "description": "One of the models that /v1/models lists; without it, the gateway's own.",
}


def _request(schema: Schema, headers: Sequence[Schema] = (*_HEADERS, _MODEL_HEADER)) -> dict[str, Any]:
    return {"requestBody": {"required": True, **_content(schema)}, "parameters": list(headers)}


def _schema_of(model: type[BaseModel], required: list[str] | None = None) -> Schema:
    """Returns a reference to the schema of a body.

    Args:
        model: the body.
        required: fields that are read by hand, and have to be there.
    """
    schema = model.model_json_schema(ref_template=_REF + "{model}")
    SCHEMAS.update(schema.pop("$defs", {}))
    if required:
        schema["required"] = [*required, *schema.get("required", [])]
    return _named(model.__name__, schema)


_FAULTS = _list(_object({"index": _INTEGER, "code": _STRING, "message": _STRING}))
_ONE = _object({"embedding": _or_null(_VECTOR), "errors": _FAULTS}, ["embedding"])
_MANY = _object({"embeddings": _list(_or_null(_VECTOR)), "errors": _FAULTS}, ["embeddings"])
_OPENAI_VECTORS = _object(
    {
        "object": {"const": "list"},
        "model": _STRING,
        "data": _list(
            _object(
                {
                    "object": {"const": "embedding"},
                    "index": _INTEGER,
                    "embedding": {"anyOf": [_VECTOR, {"type": "string", "format": "byte"}, {"type": "null"}]},
                }
            )
        ),
        "usage": _object({"prompt_tokens": _INTEGER, "total_tokens": _INTEGER}),
        "errors": _FAULTS,
    },
    ["object", "model", "data", "usage"],
)
_TOKEN = _object(
    {
        "id": _INTEGER,
        "text": _STRING,
        "special": {"type": "boolean"},
        "start": _or_null(_INTEGER),
        "stop": _or_null(_INTEGER),
    }
)

_IN_ORDER = "Vectors in the order given"
_TEI_BODY = _schema_of(TeiBody, ["inputs"])
_TEI_VECTORS = _answers(_list(_VECTOR), _IN_ORDER, _TEI_STATUSES, _TEI_ERROR)
_OPENAI = Page(
    "Embed as OpenAI's clients ask for it",
    _request(_schema_of(EmbeddingsBody, ["input"]), _HEADERS),
    _answers(_OPENAI_VECTORS, f"{_IN_ORDER}, as numbers or as float32 in base64", _STATUSES, _OPENAI_ERROR),
)
_TEI_EMBED = Page("Embed as TEI's clients ask for it", _request(_TEI_BODY), _TEI_VECTORS)


def _either(schema: Answers, other: Answers) -> Answers:
    """Returns what may come back on a route that is asked in two ways."""
    told: Answers = {}
    for status in schema | other:
        found = [each[status] for each in (schema, other) if status in each]
        schemas = [each["content"][JSON]["schema"] for each in found]
        told[status] = {"description": found[0]["description"], **_content({"anyOf": schemas})}
    return told


def _tei(summary: str, body: Schema, good: Schema, what: str) -> Page:
    return Page(summary, _request(body), _answers(good, what, _TEI_STATUSES, _TEI_ERROR))


PAGES: dict[str, Page] = {
    "/embed": Page(
        "Embed one text or many, also as TEI's clients ask for it",
        _request({"anyOf": [_schema_of(EmbedBody), _TEI_BODY]}),
        _either(_answers({"anyOf": [_ONE, _MANY]}, _IN_ORDER, _STATUSES, _ERROR), _TEI_VECTORS),
    ),
    "/batch_embed": Page(
        "Embed many texts",
        _request(_schema_of(BatchBody)),
        _answers(_MANY, _IN_ORDER, _STATUSES, _ERROR),
    ),
    "/v1/embeddings": _OPENAI,
    "/embeddings": _OPENAI,
    "/": _TEI_EMBED,
    "/invocations": _TEI_EMBED,
    "/embed_all": _tei(
        "A vector for each token",
        _schema_of(EmbedAllBody, ["inputs"]),
        _list(_list(_VECTOR)),
        "For each input the vectors of its tokens",
    ),
    "/similarity": _tei(
        "How like one text others are",
        _schema_of(SimilarityBody),
        _VECTOR,
        "The cosine of each sentence's vector to the source's",
    ),
    "/tokenize": _tei(
        "The tokens of texts", _schema_of(TokenizeBody, ["inputs"]), _list(_list(_TOKEN)), "For each text its tokens"
    ),
    "/decode": _tei(
        "The text of token ids", _schema_of(DecodeBody, ["ids"]), _list(_STRING), "A text for each list of ids"
    ),
}
"""By route."""

INFO_ANSWERS: Answers = {status: {"description": _WHY[status], **_TEI_ERROR} for status in (401, 404, 503)}
INFO: dict[str, Any] = {"parameters": [_MODEL_HEADER]}
HEALTH_ANSWERS: Answers = {503: {"description": "Not now; the body says what is missing"}}
UNHEALTHY_ANSWERS: Answers = {503: {"description": "Not now", **_TEI_ERROR}}
MODEL_ANSWERS: Answers = {404: {"description": "No worker serves it", **_OPENAI_ERROR}}
MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Its id."}
