"""Errors over HTTP: every class of the tree has a status, and all have one format."""

from __future__ import annotations

import json

import pytest

from api.dialects.base import BaseDialect
from api.dialects.cohere_operations import COHERE_OPERATIONS
from api.dialects.operations import OPERATIONS
from api.dialects.ranking_operations import RANKING_OPERATIONS
from api.errors import STATUS, error_body, headers_of, status_of
from api.routes import DIALECTS
from shared.error_tree import error_tree
from shared.errors import (
    HeadTooLargeError,
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    JobUnfinishedError,
    KeyReusedError,
    MethodNotAllowedError,
    NotFoundError,
    QueueFullError,
    RedbatchError,
    UrlTooLongError,
)

EXPECTED = {
    "RedbatchError": 500,
    "RequestError": 400,
    "InvalidRequestError": 400,
    "UnauthorizedError": 401,
    "ForbiddenError": 403,
    "NotFoundError": 404,
    "ModelNotFoundError": 404,
    "JobNotFoundError": 404,
    "JobUnfinishedError": 409,
    "RevisionGoneError": 409,
    "JobGoneError": 410,
    "KeyReusedError": 422,
    "MethodNotAllowedError": 405,
    "UnsupportedMediaTypeError": 415,
    "BodyTimeoutError": 408,
    "HeadTooLargeError": 431,
    "UrlTooLongError": 414,
    "TooLargeError": 413,
    "BodyTooLargeError": 413,
    "EmptyInputsError": 400,
    "NothingToRunError": 400,
    "UnsupportedOperationError": 400,
    "OverloadedError": 429,
    "QueueFullError": 429,
    "TooManyFailuresError": 429,
    "TooManyBodiesError": 429,
    "TooManyJobsError": 429,
    "TooManyResultsError": 429,
    "RateLimitedError": 429,
    "UnavailableError": 503,
    "RedisUnreachableError": 503,
    "ModelFailingError": 503,
    "NoWorkerError": 503,
    "JobsFullError": 503,
    "TooManyConnectionsError": 503,
    "TooManyHeadsError": 503,
    "NotDurableError": 503,
    "DeadlineExceededError": 504,
    "ModelError": 500,
    "InputFailedError": 500,
    "InternalError": 500,
}


UNDOCUMENTED = {
    RedbatchError,
    NotFoundError,
    MethodNotAllowedError,
    JobNotFoundError,
    JobUnfinishedError,
    JobGoneError,
    HeadTooLargeError,
    UrlTooLongError,
}


def test_every_class_of_the_tree_has_its_status() -> None:
    """Each class has the status that clients see; a class that is added to the tree must be added here."""
    assert {cls.__name__: status_of(cls("")) for cls in error_tree()} == EXPECTED


def test_each_row_of_the_table_is_in_the_tree() -> None:
    """The table of statuses holds only classes of the tree."""
    assert set(STATUS) <= set(error_tree())


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.route)
def test_the_documented_statuses_are_those_of_possible_errors(dialect: BaseDialect) -> None:
    """OpenAPI documents each status that an error has on the route, and no other.

    Errors of heads and of routing are not documented, and those of jobs on their own routes. Nothing raises the root of
    the tree.
    """
    body = b'{"inputs": "a"}'
    dialects = {dialect, *(dialect.for_body(each) for each in (body, b'{"texts": ["a"]}', b'{"top_k": 1}'))}
    dialects |= {other for _, other in dialect.for_ops(body)}
    impossible = UNDOCUMENTED if dialect.becomes_jobs else UNDOCUMENTED | {KeyReusedError}
    errors = [*(cls("") for cls in set(error_tree()) - impossible), InvalidRequestError("", param="a")]
    possible = {each.encode_error(error, "")[0] for each in dialects for error in errors}
    accepted = {202} if dialect.becomes_jobs else set()
    described = OPERATIONS | COHERE_OPERATIONS | RANKING_OPERATIONS
    assert set(described[dialect.route].answers) == {200} | accepted | possible


def test_an_error_has_one_format() -> None:
    """The body holds an error with a code, a message and the request's id, and nothing else."""
    body = json.loads(error_body("queue_full", "Full.", "r-1"))
    assert body == {"error": {"code": "queue_full", "message": "Full.", "request_id": "r-1"}}


@pytest.mark.parametrize(
    ("retry_after_s", "seconds", "ms"),
    [
        (None, "1", "1000"),
        (0.0, "1", "1"),
        (0.2, "1", "200"),
        (1.0, "1", "1000"),
        (1.01, "2", "1010"),
        (29.5, "30", "29500"),
    ],
)
def test_retry_headers_are_never_too_early(retry_after_s: float | None, seconds: str | None, ms: str | None) -> None:
    """Whole seconds are rounded up, at least to one."""
    error: RedbatchError = QueueFullError("", retry_after_s=retry_after_s)
    headers = headers_of(error)
    assert (headers.get("retry-after"), headers.get("retry-after-ms")) == (seconds, ms)


def test_each_429_and_503_says_when_to_retry() -> None:
    """It has both headers, also if the error itself names no time; other errors have none then."""
    with_headers = {cls for cls in error_tree() if {"retry-after", "retry-after-ms"} <= headers_of(cls("")).keys()}
    assert with_headers == {cls for cls in error_tree() if status_of(cls("")) in (429, 503)}
