"""Errors over HTTP: every class of the tree has a status, and one shape."""

from __future__ import annotations

import json

import pytest

from api.errors import STATUS, error_body, headers_of, status_of
from api.dialects.openapi import PAGES
from api.routes import SERVED
from api.http.handler import Dialect
from shared.errors import (
    JobGone,
    JobNotFound,
    JobUnfinished,
    KeyReused,
    MethodNotAllowed,
    NotFound,
    QueueFull,
    RedbatchError,
    error_tree,
)

EXPECTED = {
    "RedbatchError": 500,
    "RequestError": 400,
    "InvalidRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "ModelNotFound": 404,
    "JobNotFound": 404,
    "JobUnfinished": 409,
    "JobGone": 410,
    "KeyReused": 422,
    "MethodNotAllowed": 405,
    "UnsupportedMediaType": 415,
    "BodyTimeout": 408,
    "TooLarge": 413,
    "BodyTooLarge": 413,
    "EmptyInputs": 400,
    "Overloaded": 429,
    "QueueFull": 429,
    "TooManyFailures": 429,
    "TooManyBodies": 429,
    "RateLimited": 429,
    "Unavailable": 503,
    "RedisUnreachable": 503,
    "NoWorker": 503,
    "JobsFull": 503,
    "NotDurable": 503,
    "DeadlineExceeded": 504,
    "ModelError": 500,
    "InputFailed": 500,
    "InternalError": 500,
}


ELSEWHERE = {NotFound, MethodNotAllowed, JobNotFound, JobUnfinished, JobGone, KeyReused}


def test_every_class_of_the_tree_has_its_status() -> None:
    """A class that is added to the tree must be added here, with the status that clients will see."""
    assert {cls.__name__: status_of(cls("")) for cls in error_tree()} == EXPECTED


def test_no_row_of_the_table_is_idle() -> None:
    """Each class in the table is one of the tree."""
    assert set(STATUS) <= set(error_tree())


@pytest.mark.parametrize("dialect", SERVED.values(), ids=lambda dialect: dialect.route)
def test_the_documented_statuses_are_those_that_can_be_answered(dialect: Dialect) -> None:
    """The OpenAPI page tells of each status that an error has here, and of no other.

    Those of routing stand nowhere, and those of jobs elsewhere.
    """
    spoken = {dialect, dialect.for_body(b'{"inputs": "a"}')}
    errors = [cls("") for cls in set(error_tree()) - ELSEWHERE]
    possible = {each.refusal(error, "")[0] for each in spoken for error in errors}
    assert set(PAGES[dialect.route].answers) == {200} | possible


def test_an_error_is_told_in_one_shape() -> None:
    """The body has an error with a code, a message and the request's id, and nothing else."""
    told = json.loads(error_body("queue_full", "Full.", "r-1"))
    assert told == {"error": {"code": "queue_full", "message": "Full.", "request_id": "r-1"}}


@pytest.mark.parametrize(
    ("after_s", "seconds", "ms"),
    [
        (None, None, None),
        (0.0, "1", "1"),
        (0.2, "1", "200"),
        (1.0, "1", "1000"),
        (1.01, "2", "1010"),
        (29.5, "30", "29500"),
    ],
)
def test_when_to_come_again_is_never_too_early(after_s: float | None, seconds: str | None, ms: str | None) -> None:
    """Whole seconds are rounded up, at least to one; an error that cannot be tried again has no such headers."""
    error: RedbatchError = QueueFull("", retry_after_s=after_s)
    headers = headers_of(error)
    assert (headers.get("retry-after"), headers.get("retry-after-ms")) == (seconds, ms)
