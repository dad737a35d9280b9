"""The OpenAPI descriptions of the routes of jobs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from api.dialects.example_errors import KEY_REUSED, NO_API_KEY, NO_SUCH_MODEL, RATE_LIMITED
from api.dialects.operation_headers import IDEMPOTENCY
from api.dialects.operations import NATIVE, Operation, error_answers, request_of
from api.dialects.response_models import (
    EXAMPLE_JOB_ID,
    EXAMPLE_LINKS,
    AcceptedJob,
    InputFailure,
    JobLinks,
    Truncated,
    Vector,
    examples,
)
from api.dialects.schemas import Schema, body_schema
from api.dialects.text_options import TextOptions
from api.jobs.result_form import RAW_SCORES
from api.jobs.schema import NDJSON_TYPES, JobBody
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    JobsFullError,
    JobUnfinishedError,
    NotDurableError,
    RedbatchError,
    RedisUnreachableError,
    TooManyBodiesError,
    TooManyFailuresError,
    UnsupportedMediaTypeError,
)

_FAILURE = {"index": 1, "code": "invalid_request", "message": "The text is empty."}


class Job(JobLinks):
    """A job; times are in seconds since the epoch."""

    model_config = examples(
        EXAMPLE_LINKS
        | {
            "status": "done",
            "op": "embed",
            "n": 4,
            "done": 3,
            "failed": 1,
            "truncated_inputs": 1,
            "revisions": ["8aadba9b60fb7294"],
            "created_at": 1_795_573_996.421,
            "started_at": 1_795_573_996.454,
            "finished_at": 1_795_573_996.645,
            "expires_at": 1_795_660_396.421,
            "kept_until": 1_795_577_596.645,
            "errors": [_FAILURE],
        }
    )

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
    """Consecutive results of a job, from `offset`.

    Vectors are in `embeddings`, and any JSON and sparse vectors in `outputs`. Of pairs, `scores` has a number for each;
    of a classifier, a row with the score of each of its `labels`.
    """

    model_config = examples(
        {
            "id": EXAMPLE_JOB_ID,
            "n": 4,
            "offset": 0,
            "embeddings": [[-0.0342, -0.0121, -0.0346], None],
            "errors": [_FAILURE],
            "next_url": f"{EXAMPLE_LINKS['result_url']}?offset=2&limit=2",
        },
        {"id": EXAMPLE_JOB_ID, "n": 2, "offset": 0, "outputs": [49.0, 64.0], "errors": [], "next_url": None},
        {"id": EXAMPLE_JOB_ID, "n": 2, "offset": 0, "scores": [0.9981, 0.0024], "errors": [], "next_url": None},
    )

    id: str
    n: int
    offset: int
    embeddings: list[Vector | list[Vector] | None] = Field(default_factory=list)
    outputs: list[Any] = Field(default_factory=list)
    scores: list[float | list[float] | None] = Field(default_factory=list)
    labels: list[str] = Field(default_factory=list, description="Only of a classifier.")
    truncated: Truncated
    errors: list[InputFailure]
    next_url: str | None


NO_SUCH_JOB = (
    "There is no such job: check its id. A job is deleted some time after its end (job_ttl_s), and only its own tenant "
    "sees it: that of the API key or, without keys, of X-Tenant."
)
"""It does not reveal whether another tenant has the job."""

_JOB_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The job's id.",
}


def _query(name: str, maximum: int, description: str, *, minimum: int = 0) -> Schema:
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
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
    "description": 'A text, {"text": ...}, {"query": ..., "text": ...} or {"input": ...} on each line.',
    "examples": ['{"text": "one"}\n{"text": "two"}\n'],
}
_JOB_BODY = request_of(body_schema(JobBody))
_JOB_BODY["requestBody"]["content"] |= {kind: {"schema": _LINE} for kind in NDJSON_TYPES}
_JOB_BODY["parameters"] = [
    *(each for each in _JOB_BODY["parameters"] if each["name"] not in ("X-Timeout-Ms", "Prefer", "Idempotency-Key")),
    IDEMPOTENCY,
    *_line_options(),
]
_COMMON: tuple[RedbatchError, ...] = (
    InvalidRequestError("X-Tenant: send up to 64 letters, digits, dots, dashes and underscores."),
    NO_API_KEY,
    ForbiddenError("This key lacks the scope jobs: its scopes are embed."),
    TooManyFailuresError("Too many wrong keys came from your address: wait, then try again."),
    InternalError("Internal error: see the gateway's logs."),
    RedisUnreachableError("Redis is out of reach: try again."),
)
_MAKE_ERRORS = (
    *_COMMON,
    InvalidRequestError("There is no input: send at least one."),
    NO_SUCH_MODEL,
    BodyTimeoutError("No data arrived for 30 s: send the body without long pauses."),
    BodyTooLargeError("The body is over the limit of 268435456 bytes: split it into several jobs."),
    UnsupportedMediaTypeError("Send JSON, with the header Content-Type: application/json, or application/x-ndjson."),
    KEY_REUSED,
    TooManyBodiesError("Too many jobs are being received: try again soon."),
    RATE_LIMITED,
    JobsFullError("There is no capacity for more jobs: try again later."),
    NotDurableError("Redis has not written the job to disk in time: try again."),
)
_JOB_ERRORS = (
    *_COMMON,
    JobNotFoundError(NO_SUCH_JOB),
)
_RESULT_ERRORS = (
    *_JOB_ERRORS,
    JobUnfinishedError("This job is queued: try again when it has ended."),
    JobGoneError("This job was cancelled, so it has no result."),
)
_DESCRIPTIONS = {
    404: "The job does not exist, or belongs to another tenant",
    409: "The job has not ended",
    410: "The job was cancelled or deleted",
}
_JOB_ANSWERS = error_answers({NATIVE: _JOB_ERRORS}, _DESCRIPTIONS)

OPERATIONS: dict[str, Operation] = {
    "make": Operation(
        "Submit a job, to be run later",
        _JOB_BODY,
        {
            202: {"description": "Accepted; the job runs without the client", "model": AcceptedJob},
            **error_answers(
                {NATIVE: _MAKE_ERRORS},
                {
                    422: "The Idempotency-Key belongs to another job",
                    503: "The gateway cannot guarantee that the job was accepted: see the code",
                },
            ),
        },
    ),
    "show": Operation(
        "Status of a job",
        {
            "parameters": [
                _JOB_ID,
                _query("wait", 60, "Answer when the job has ended, or after this many seconds, at most 60."),
            ]
        },
        {200: {"description": "The job", "model": Job}, **_JOB_ANSWERS},
    ),
    "cancel": Operation(
        "Cancel a job", {"parameters": [_JOB_ID]}, {200: {"description": "The job", "model": Job}, **_JOB_ANSWERS}
    ),
    "result": Operation(
        "The results of a job",
        {
            "parameters": [
                _JOB_ID,
                _query("offset", 10**9, "Index of the first result; beyond the last one, the page is empty."),
                _query(
                    "limit",
                    1_000,
                    "Number of results, as JSON at most 1000; as application/x-npy, all by default.",
                    minimum=1,
                ),
                {
                    "name": RAW_SCORES,
                    "in": "query",
                    "schema": {"type": "boolean"},
                    "description": "Of scores: whether to return the logits of the model instead.",
                },
            ]
        },
        {
            200: {
                "description": "A page of results; or, as application/x-npy, all vectors or scores as float32",
                "model": JobResultPage,
                "content": {"application/x-npy": {"schema": {"type": "string", "format": "binary"}}},
            },
            **error_answers({NATIVE: _RESULT_ERRORS}, _DESCRIPTIONS),
        },
    ),
}
"""By the name of the route's function."""
