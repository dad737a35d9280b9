"""How an error looks over HTTP: one table of statuses, and the shape of body that Redbatch has of its own."""

from __future__ import annotations

import math

import orjson

from shared.errors import (
    BodyTimeoutError,
    DeadlineExceededError,
    ForbiddenError,
    JobGoneError,
    JobUnfinishedError,
    KeyReusedError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    RedbatchError,
    RequestError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
)

STATUS: dict[type[RedbatchError], int] = {
    RequestError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    MethodNotAllowedError: 405,
    BodyTimeoutError: 408,
    JobUnfinishedError: 409,
    JobGoneError: 410,
    TooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    KeyReusedError: 422,
    OverloadedError: 429,
    UnavailableError: 503,
    DeadlineExceededError: 504,
}
"""The status of each branch of the error tree; what is under none of them is 500."""


def status_of(error: RedbatchError) -> int:
    """Returns the HTTP status of an error: that of its nearest ancestor in the table."""
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), 500)


def error_body(code: str, message: str, request_id: str) -> bytes:
    """Returns the shape in which errors are told, but for OpenAI's clients."""
    return orjson.dumps({"error": {"code": code, "message": message, "request_id": request_id}})


def headers_of(error: RedbatchError) -> dict[str, str]:
    """Returns `Retry-After` (whole seconds, rounded up) and `retry-after-ms`, where trying again makes sense.

    An answer that asks for a key has `WWW-Authenticate`, as HTTP has it.
    """
    if isinstance(error, UnauthorizedError):
        return {"www-authenticate": "Bearer"}
    if error.retry_after_s is None:
        return {}
    wait_ms = max(1, math.ceil(error.retry_after_s * 1000))
    return {"retry-after": str(math.ceil(wait_ms / 1000)), "retry-after-ms": str(wait_ms)}
