"""The OpenAPI descriptions of the headers of routes whose bodies are parsed by hand. Pure."""

from __future__ import annotations

from api.dialects.request import MAX_TIMEOUT_MS, REVISION_HEADER, TRUNCATED_HEADER
from api.dialects.revisions import REVISION_PATTERN
from api.dialects.schemas import Schema
from shared.keys import LANES

ANSWER_HEADERS: Schema = {
    REVISION_HEADER: {
        "schema": {"type": "string"},
        "description": "Revision of the model that gave the answer; of a function perhaps several, with commas.",
    },
    TRUNCATED_HEADER: {
        "schema": {"type": "integer", "minimum": 1},
        "description": "Number of inputs that were truncated to the model's maximum length; absent if there are none.",
    },
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "description": "Requests with the same key make one job: send a request again if its answer was lost.",
}
HEADERS = [
    {
        "name": "X-Timeout-Ms",
        "in": "header",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "description": "Maximum time for the answer.",
    },
    {
        "name": "X-Priority",
        "in": "header",
        "schema": {"type": "string", "enum": list(LANES)},
        "description": "bulk for requests that no user waits for.",
    },
    {
        "name": "X-Tenant",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "description": "The tenant that the request counts for, where the gateway requires no API key.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Returned with the answer, and written to logs.",
    },
    {
        "name": "Prefer",
        "in": "header",
        "schema": {"type": "string"},
        "description": "respond-async: accept the request as a job, and answer 202 at once.",
    },
    {
        "name": "X-Model-Revision",
        "in": "header",
        "schema": {"type": "string", "pattern": f"^{REVISION_PATTERN}$"},
        "description": "Only this revision of the model may answer; the same as @revision after the model's name.",
    },
    IDEMPOTENCY,
]
MODEL_PARAMETER = {
    "name": "X-Model",
    "in": "header",
    "schema": {"type": "string"},
    "description": "A model that /v1/models lists; by default the gateway's own.",
}
