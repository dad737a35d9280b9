"""The OpenAPI descriptions of the routes of jobs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from api.dialects.operations import IDEMPOTENCY, Operation, Schema, body_schema, error_answers, request_of
from api.dialects.response_models import AcceptedJob, InputFailure, JobLinks, Truncated, Vector
from api.dialects.text_options import TextOptions
from api.jobs.schema import NDJSON_TYPES, JobBody


class Job(JobLinks):
    """A job; times are in seconds since the epoch."""

    op: str
    n: int
    done: int
    failed: int
    truncated_inputs: int
    revisions: list[str]
    created_at: float | None
    started_at: float | None
    finished_at: float | None
    expires_at: float | None
    kept_until: float | None
    errors: list[InputFailure]


class JobResultPage(BaseModel):
    """Consecutive results of a job, from `offset`: vectors in `embeddings`, or any JSON in `outputs`."""

    id: str
    n: int
    offset: int
    embeddings: list[Vector | list[Vector] | None] = Field(default_factory=list)
    outputs: list[Any] = Field(default_factory=list)
    truncated: Truncated
    errors: list[InputFailure]
    next_url: str | None


_JOB_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The job's id.",
}


def _query(name: str, maximum: int, description: str) -> Schema:
    schema = {"type": "integer", "minimum": 0, "maximum": maximum}
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _line_options() -> list[Schema]:
    """Returns the options of texts as parameters of the query, where lines have no place for them."""
    schemas = TextOptions.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "schema": next(each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}),
            "description": f"Only with a body of lines. {schema['description']}",
        }
        for name, schema in schemas.items()
    ]


_LINE = {
    "type": "string",
    "description": 'A text, {"text": ...} or {"input": ...} on each line.',
    "examples": ['{"text": "one"}\n{"text": "two"}\n'],
}
_JOB_BODY = request_of(body_schema(JobBody))
_JOB_BODY["requestBody"]["content"] |= {kind: {"schema": _LINE} for kind in NDJSON_TYPES}
_JOB_BODY["parameters"] = [
    *(each for each in _JOB_BODY["parameters"] if each["name"] not in ("X-Timeout-Ms", "Prefer", "Idempotency-Key")),
    IDEMPOTENCY,
    *_line_options(),
]
_JOB_STATUSES = (400, 401, 403, 404, 429, 500, 503)
_JOB_ERRORS = error_answers(_JOB_STATUSES, {404: "The job does not exist, or belongs to another tenant"})

OPERATIONS: dict[str, Operation] = {
    "make": Operation(
        "Submit a job, to be run later",
        _JOB_BODY,
        {
            202: {"description": "Accepted; the job runs without the client", "model": AcceptedJob},
            **error_answers(
                (*_JOB_STATUSES, 408, 413, 415, 422),
                {
                    422: "The Idempotency-Key belongs to another job",
                    503: "The gateway cannot guarantee that the job was accepted: see the code",
                },
            ),
        },
    ),
    "show": Operation(
        "Status of a job",
        {"parameters": [_JOB_ID, _query("wait", 60, "Answer when the job has ended, or after this many seconds.")]},
        {200: {"description": "The job", "model": Job}, **_JOB_ERRORS},
    ),
    "cancel": Operation(
        "Cancel a job", {"parameters": [_JOB_ID]}, {200: {"description": "The job", "model": Job}, **_JOB_ERRORS}
    ),
    "result": Operation(
        "The results of a job",
        {
            "parameters": [
                _JOB_ID,
                _query("offset", 10**9, "Index of the first result."),
                _query("limit", 1_000, "Maximum number of results; as application/x-npy, all by default."),
            ]
        },
        {
            200: {
                "description": "A page of results; or, as application/x-npy, all vectors as float32",
                "model": JobResultPage,
                "content": {"application/x-npy": {"schema": {"type": "string", "format": "binary"}}},
            },
            **_JOB_ERRORS,
            **error_answers((409, 410), {409: "The job has not ended", 410: "The job was cancelled"}),
        },
    ),
}
"""By the name of the route's function."""
