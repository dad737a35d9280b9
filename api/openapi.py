"""What the OpenAPI page says of POST /embed, whose body is read by hand."""

from __future__ import annotations

from typing import Any

from api.body import MAX_TIMEOUT_MS, EmbedBody
from shared.keys import LANES

JSON = "application/json"

_ERROR: dict[str, Any] = {
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message", "request_id"],
                        "properties": {name: {"type": "string"} for name in ("code", "message", "request_id")},
                    }
                },
            }
        }
    }
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
    400: {"description": "Malformed JSON, a missing or empty text, a wrong type", **_ERROR},
    408: {"description": "The body did not arrive in time", **_ERROR},
    413: {"description": "Body, inputs or characters over the limit", **_ERROR},
    415: {"description": "The body is not JSON", **_ERROR},
    429: {
        "description": "Too much waits already, or Redis runs out of memory; `Retry-After` says when to come again",
        **_ERROR,
    },
    500: {"description": "The model failed on an input", **_ERROR},
    503: {"description": "Redis is out of reach, or no worker has lived for a while", **_ERROR},
    504: {"description": "The deadline passed", **_ERROR},
}
EMBED_REQUEST: dict[str, Any] = {
    "requestBody": {"required": True, "content": {JSON: {"schema": EmbedBody.model_json_schema()}}},
    "parameters": [
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
    ],
}
HEALTH_RESPONSES: dict[int | str, dict[str, Any]] = {503: {"description": "Not now; the body says what is missing"}}
