"""Errors over HTTP: the table of statuses, the headers, and the body in Redbatch's own format. Pure."""

from __future__ import annotations

import math

import orjson

from shared.errors import (
    BodyTimeoutError,
    DeadlineExceededError,
    ForbiddenError,
    HeadTooLargeError,
    JobGoneError,
    JobUnfinishedError,
    KeyReusedError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    RedbatchError,
    RequestError,
    RevisionGoneError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
    UrlTooLongError,
)

STATUS: dict[type[RedbatchError], int] = {
    RequestError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    MethodNotAllowedError: 405,
    BodyTimeoutError: 408,
    JobUnfinishedError: 409,
    RevisionGoneError: 409,
    JobGoneError: 410,
    TooLargeError: 413,
    UrlTooLongError: 414,
    UnsupportedMediaTypeError: 415,
    KeyReusedError: 422,
    OverloadedError: 429,
    HeadTooLargeError: 431,
    UnavailableError: 503,
    DeadlineExceededError: 504,
}
"""The status of each branch of the error tree; all other errors are 500."""


def status_of(error: RedbatchError) -> int:
    """Returns the HTTP status of an error: that of its nearest ancestor in the table, or 500."""
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), 500)


def error_body(code: str, message: str, request_id: str) -> bytes:
    """Returns the body of an error in Redbatch's own format."""
    return orjson.dumps({"error": {"code": code, "message": message, "request_id": request_id}})


DEFAULT_RETRY_S = 1.0
"""Of a temporary error that may end at any time, as when Redis is out of reach."""


def headers_of(error: RedbatchError) -> dict[str, str]:
    """Returns `Retry-After` (whole seconds, rounded up) and `retry-after-ms`, which each 429 and 503 has.

    The answer to a missing or invalid API key has `WWW-Authenticate` instead, as HTTP requires, and one that a client
    may not repeat by itself, although of its status it would, says so.
    """
    if isinstance(error, UnauthorizedError):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, RevisionGoneError):  # OpenAI's clients repeat each 409 unless this forbids it
        return {"x-should-retry": "false"}
    retry_after_s = error.retry_after_s
    if retry_after_s is None:
        if not isinstance(error, OverloadedError | UnavailableError):
            return {}
        retry_after_s = DEFAULT_RETRY_S
    wait_ms = max(1, math.ceil(retry_after_s * 1000))
    return {"retry-after": str(math.ceil(wait_ms / 1000)), "retry-after-ms": str(wait_ms)}
