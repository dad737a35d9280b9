"""What the OpenAPI page says of the routes whose bodies are read by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from api.dialects.request import MAX_TIMEOUT_MS
from api.dialects.native import BatchBody, EmbedBody
from api.dialects.openai import EmbeddingsBody
from api.dialects.predict import PredictBody
from api.dialects.tei import DecodeBody, EmbedAllBody, SimilarityBody, TeiBody, TokenizeBody
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


def named(name: str, schema: Schema) -> Schema:
    """Returns a reference to a schema that has this name from now on."""
    SCHEMAS[name] = schema
    return {"$ref": f"{_REF}{name}"}


def content(schema: Schema) -> dict[str, Any]:
    """Returns what OpenAPI says of a body of JSON with a schema."""
    return {"content": {JSON: {"schema": schema}}}


def object_of(properties: Schema, required: list[str] | None = None) -> Schema:
    """Returns the schema of an object, all of whose properties are there unless some are named as `required`."""
    return {"type": "object", "required": list(properties) if required is None else required, "properties": properties}


def list_of(of: Schema) -> Schema:
    """Returns the schema of a list."""
    return {"type": "array", "items": of}


def or_null(schema: Schema) -> Schema:
    """Returns the schema of what may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
VECTOR = list_of({"type": "number"})

_TOLD = {"code": STRING, "message": STRING, "request_id": STRING}
ERROR = content(named("Error", object_of({"error": object_of(_TOLD)})))
_OPENAI_TOLD = {"message": STRING, "type": STRING, "param": or_null(STRING), "code": STRING}
_OPENAI_ERROR = content(named("OpenAIError", object_of({"error": object_of(_OPENAI_TOLD)})))
_TEI_KINDS = ["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
_TEI_TOLD = {"error": STRING, "error_type": {"type": "string", "enum": _TEI_KINDS}}
_TEI_ERROR = content(named("TEIError", object_of(_TEI_TOLD)))

WHY = {
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
        200: {"description": what, **content(good)},
        **{each: {"description": WHY[each], **error} for each in statuses},
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


def request_of(schema: Schema, headers: Sequence[Schema] = (*_HEADERS, _MODEL_HEADER)) -> dict[str, Any]:
    """Returns what OpenAPI says of a request with such a body and these headers."""
    return {"requestBody": {"required": True, **content(schema)}, "parameters": list(headers)}


def schema_of(model: type[BaseModel], required: list[str] | None = None) -> Schema:
    """Returns a reference to the schema of a body.

    Args:
        model: the body.
        required: fields that are read by hand, and have to be there.
    """
    schema = model.model_json_schema(ref_template=_REF + "{model}")
    SCHEMAS.update(schema.pop("$defs", {}))
    if required:
        schema["required"] = [*required, *schema.get("required", [])]
    return named(model.__name__, schema)


FAULTS = list_of(object_of({"index": INTEGER, "code": STRING, "message": STRING}))
_ONE = object_of({"embedding": or_null(VECTOR), "errors": FAULTS}, ["embedding"])
_MANY = object_of({"embeddings": list_of(or_null(VECTOR)), "errors": FAULTS}, ["embeddings"])
_ANY: Schema = {"description": "Whatever the function gives."}
_OUTPUT = object_of({"output": _ANY, "errors": FAULTS}, ["output"])
_OUTPUTS = object_of({"outputs": list_of(_ANY), "errors": FAULTS}, ["outputs"])
_OPENAI_VECTORS = object_of(
    {
        "object": {"const": "list"},
        "model": STRING,
        "data": list_of(
            object_of(
                {
                    "object": {"const": "embedding"},
                    "index": INTEGER,
                    "embedding": {"anyOf": [VECTOR, {"type": "string", "format": "byte"}, {"type": "null"}]},
                }
            )
        ),
        "usage": object_of({"prompt_tokens": INTEGER, "total_tokens": INTEGER}),
        "errors": FAULTS,
    },
    ["object", "model", "data", "usage"],
)
_TOKEN = object_of(
    {
        "id": INTEGER,
        "text": STRING,
        "special": {"type": "boolean"},
        "start": or_null(INTEGER),
        "stop": or_null(INTEGER),
    }
)

_IN_ORDER = "Vectors in the order given"
_TEI_BODY = schema_of(TeiBody, ["inputs"])
_TEI_VECTORS = _answers(list_of(VECTOR), _IN_ORDER, _TEI_STATUSES, _TEI_ERROR)
_OPENAI = Page(
    "Embed as OpenAI's clients ask for it",
    request_of(schema_of(EmbeddingsBody, ["input"]), _HEADERS),
    _answers(_OPENAI_VECTORS, f"{_IN_ORDER}, as numbers or as float32 in base64", _STATUSES, _OPENAI_ERROR),
)
_TEI_EMBED = Page("Embed as TEI's clients ask for it", request_of(_TEI_BODY), _TEI_VECTORS)


def _either(schema: Answers, other: Answers) -> Answers:
    """Returns what may come back on a route that is asked in two ways."""
    told: Answers = {}
    for status in schema | other:
        found = [each[status] for each in (schema, other) if status in each]
        schemas = [each["content"][JSON]["schema"] for each in found]
        told[status] = {"description": found[0]["description"], **content({"anyOf": schemas})}
    return told


def _tei(summary: str, body: Schema, good: Schema, what: str) -> Page:
    return Page(summary, request_of(body), _answers(good, what, _TEI_STATUSES, _TEI_ERROR))


PAGES: dict[str, Page] = {
    "/embed": Page(
        "Embed one text or many, also as TEI's clients ask for it",
        request_of({"anyOf": [schema_of(EmbedBody), _TEI_BODY]}),
        _either(_answers({"anyOf": [_ONE, _MANY]}, _IN_ORDER, _STATUSES, ERROR), _TEI_VECTORS),
    ),
    "/batch_embed": Page(
        "Embed many texts",
        request_of(schema_of(BatchBody)),
        _answers(_MANY, _IN_ORDER, _STATUSES, ERROR),
    ),
    "/predict": Page(
        "Ask a function of your own",
        request_of(schema_of(PredictBody)),
        _answers({"anyOf": [_OUTPUT, _OUTPUTS]}, "Outputs in the order given", _STATUSES, ERROR),
    ),
    "/v1/embeddings": _OPENAI,
    "/embeddings": _OPENAI,
    "/": _TEI_EMBED,
    "/invocations": _TEI_EMBED,
    "/embed_all": _tei(
        "A vector for each token",
        schema_of(EmbedAllBody, ["inputs"]),
        list_of(list_of(VECTOR)),
        "For each input the vectors of its tokens",
    ),
    "/similarity": _tei(
        "How like one text others are",
        schema_of(SimilarityBody),
        VECTOR,
        "The cosine of each sentence's vector to the source's",
    ),
    "/tokenize": _tei(
        "The tokens of texts", schema_of(TokenizeBody, ["inputs"]), list_of(list_of(_TOKEN)), "For each text its tokens"
    ),
    "/decode": _tei(
        "The text of token ids", schema_of(DecodeBody, ["ids"]), list_of(STRING), "A text for each list of ids"
    ),
}
"""By route."""

INFO_ANSWERS: Answers = {status: {"description": WHY[status], **_TEI_ERROR} for status in (401, 404, 503)}
INFO: dict[str, Any] = {"parameters": [_MODEL_HEADER]}
HEALTH_ANSWERS: Answers = {503: {"description": "Not now; the body says what is missing"}}
UNHEALTHY_ANSWERS: Answers = {503: {"description": "Not now", **_TEI_ERROR}}
MODEL_ANSWERS: Answers = {404: {"description": "No worker serves it", **_OPENAI_ERROR}}
MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Its id."}
EXCLUDE = {
    "name": "exclude",
    "in": "query",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "What does not count: redis, worker or draining.",
}
