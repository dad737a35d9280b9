"""What the OpenAPI page says of the routes whose bodies are read by hand."""

from __future__ import annotations

from typing import Any

from api.asked import MAX_TIMEOUT_MS
from api.native import EmbedBody
from api.openai import EmbeddingsBody
from shared.keys import LANES

JSON = "application/json"


def _error(**fields: object) -> dict[str, Any]:
    """Returns the content of an answer with an error that has these fields, of these types."""
    each = {name: {"type": kind} for name, kind in fields.items()}
    error = {"type": "object", "required": list(fields), "properties": each}
    return {"content": {JSON: {"schema": {"type": "object", "required": ["error"], "properties": {"error": error}}}}}


_ERROR = _error(code="string", message="string", request_id="string")
_OPENAI_ERROR = _error(message="string", type="string", param=["string", "null"], code="string")


def _refusals(error: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Returns what may come in place of vectors, told in this shape."""
    return {
        400: {"description": "Malformed JSON, a missing or empty text, a wrong type", **error},
        408: {"description": "The body did not arrive in time", **error},
        413: {"description": "Body, inputs or characters over the limit", **error},
        415: {"description": "The body is not JSON", **error},
        429: {
            "description": "Too much waits already, or Redis runs out of memory; `Retry-After` says when to come again",
            **error,
        },
        500: {"description": "The model failed on an input", **error},
        503: {"description": "Redis is out of reach, or no worker has lived for a while", **error},
        504: {"description": "The deadline passed", **error},
    }


_VECTOR = {"type": "array", "items": {"type": "number"}}
EMBED_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`embedding` for `text`, `embeddings` for `texts`, in the order given",
        "content": {
            JSON: {
                "schema": {
                    "oneOf": [
                        {"type": "object", "required": ["embedding"], "properties": {"embedding": _VECTOR}},
                        {
                            "type": "object",
                            "required": ["embeddings"],
                            "properties": {"embeddings": {"type": "array", "items": _VECTOR}},
                        },
                    ]
                }
            }
        },
    },
    **_refusals(_ERROR),
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
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Comes back, and stands in logs.",
    },
]
EMBED_REQUEST: dict[str, Any] = {
    "requestBody": {"required": True, "content": {JSON: {"schema": EmbedBody.model_json_schema()}}},
    "parameters": _HEADERS,
}
HEALTH_RESPONSES: dict[int | str, dict[str, Any]] = {503: {"description": "Not now; the body says what is missing"}}
EMBEDDINGS_REQUEST: dict[str, Any] = {
    "requestBody": {"required": True, "content": {JSON: {"schema": EmbeddingsBody.model_json_schema()}}},
    "parameters": _HEADERS,
}
_USAGE = ("prompt_tokens", "total_tokens")
EMBEDDINGS_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Vectors in the order given, as numbers or as float32 in base64",
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["object", "data", "model", "usage"],
                    "properties": {
                        "object": {"const": "list"},
                        "model": {"type": "string"},
                        "data": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["object", "index", "embedding"],
                                "properties": {
                                    "object": {"const": "embedding"},
                                    "index": {"type": "integer"},
                                    "embedding": {"oneOf": [_VECTOR, {"type": "string", "format": "byte"}]},
                                },
                            },
                        },
                        "usage": {
                            "type": "object",
                            "required": list(_USAGE),
                            "properties": {name: {"type": "integer"} for name in _USAGE},
                        },
                    },
                }
            }
        },
    },
    404: {"description": "No worker serves this model", **_OPENAI_ERROR},
    **_refusals(_OPENAI_ERROR),
}
MODEL_RESPONSES: dict[int | str, dict[str, Any]] = {404: {"description": "No worker serves it", **_OPENAI_ERROR}}
MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Its id."}
