"""What the OpenAPI page says of jobs."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import Response

from api.jobs.schema import LINES, JobBody
from api.dialects.openapi import (
    ERROR,
    FAULTS,
    INTEGER,
    JSON,
    STRING,
    VECTOR,
    WHY,
    Answers,
    Schema,
    content,
    list_of,
    named,
    object_of,
    or_null,
    request_of,
    schema_of,
)

_SECONDS = or_null({"type": "number"})
_JOB_URLS = {"id": STRING, "status": STRING, "status_url": STRING, "result_url": STRING}
_ACCEPTED = named("AcceptedJob", object_of(_JOB_URLS))
_JOB = named(
    "Job",
    object_of(
        {
            **_JOB_URLS,
            "n": INTEGER,
            "done": INTEGER,
            "failed": INTEGER,
            "revisions": list_of(STRING),
            "created_at": _SECONDS,
            "started_at": _SECONDS,
            "finished_at": _SECONDS,
            "expires_at": _SECONDS,
            "kept_until": _SECONDS,
            "errors": FAULTS,
        }
    ),
)
_PAGE = object_of(
    {
        "id": STRING,
        "n": INTEGER,
        "offset": INTEGER,
        "embeddings": list_of(or_null(VECTOR)),
        "errors": FAULTS,
        "next_url": or_null(STRING),
    }
)
_JOB_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Of the job."}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "description": "With the same key, the same job: it may be sent again when the answer was lost.",
}


def _query(name: str, most: int, description: str) -> Schema:
    schema = {"type": "integer", "minimum": 0, "maximum": most}
    return {"name": name, "in": "query", "schema": schema, "description": description}


class JobPage(NamedTuple):
    """What the page says of one route of jobs: in a few words, and what FastAPI is told of it."""

    summary: str
    described: dict[str, Any]


def _job_page(
    summary: str, good: Answers, statuses: tuple[int, ...], request: dict[str, Any], why: dict[int, str] | None = None
) -> JobPage:
    told = WHY | (why or {})
    answers: Answers = {**good, **{each: {"description": told[each], **ERROR} for each in statuses}}
    return JobPage(summary, {"responses": answers, "openapi_extra": request, "response_class": Response})


_LINE = {"type": "string", "description": 'A text, or {"text": ...}, on each line.'}
_JOB_BODY = request_of(schema_of(JobBody))
_JOB_BODY["requestBody"]["content"] |= {kind: {"schema": _LINE} for kind in LINES}
_JOB_BODY["parameters"] = [*(each for each in _JOB_BODY["parameters"] if each["name"] != "X-Timeout-Ms"), _IDEMPOTENCY]
_NO_JOB = {404: "There is no such job, or it is another's"}
_JOB_STATUSES = (400, 401, 403, 404, 429, 500, 503)

PAGES: dict[str, JobPage] = {
    "make": _job_page(
        "Embed later: take a job",
        {202: {"description": "Taken; it goes on by itself", **content(_ACCEPTED)}},
        (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503),
        _JOB_BODY,
        {
            422: "The Idempotency-Key stands for another job",
            503: "It cannot be promised that the job is taken: see the code",
        },
    ),
    "show": _job_page(
        "How far a job is",
        {200: {"description": "The job", **content(_JOB)}},
        _JOB_STATUSES,
        {"parameters": [_JOB_ID, _query("wait", 60, "Answer when it has ended, or after so many seconds.")]},
        _NO_JOB,
    ),
    "cancel": _job_page(
        "Cancel a job",
        {200: {"description": "The job", **content(_JOB)}},
        _JOB_STATUSES,
        {"parameters": [_JOB_ID]},
        _NO_JOB,
    ),
    "result": _job_page(
        "The vectors of a job",
        {
            200: {
                "description": "A page of them; or, as application/x-npy, all of them as float32",
                "content": {
                    JSON: {"schema": _PAGE},
                    "application/x-npy": {"schema": {"type": "string", "format": "binary"}},
                },
            }
        },
        (*_JOB_STATUSES, 409, 410),
        {
            "parameters": [
                _JOB_ID,
                _query("offset", 10**9, "Of the first one."),
                _query("limit", 1_000, "How many; as application/x-npy, as many as there are."),
            ]
        },
        {**_NO_JOB, 409: "It has not ended", 410: "It was cancelled"},
    ),
}
"""What may be done with jobs."""
