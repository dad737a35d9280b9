"""The answer to a request that the application does not get: in Redbatch's own format, logged, and counted."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import NamedTuple

from httptools import HttpParserCallbackError, HttpParserError

from api import metrics
from api.errors import error_body, headers_of, status_of
from shared.errors import RedbatchError
from shared.process.limited_log import LimitedLog
from shared.process.tracebacks import describe_briefly

INVALID_HTTP = "Invalid HTTP request received."
"""The answer to bytes that are not HTTP."""

limited_log = LimitedLog()


class EarlyError(NamedTuple):
    """The parts of an answer."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes


def early_error(error: RedbatchError, client: str) -> EarlyError:
    """Returns an error as an answer after which the connection is closed, counts it, and logs it with the address."""
    status, request_id = status_of(error), secrets.token_hex(16)
    is_failure = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    level, event = (logging.ERROR, "request failed") if is_failure else (logging.INFO, "request refused")
    details = {"message": error.log_message, "client": client, "request_id": request_id}
    limited_log.write(level, event, lambda: details, status=status, code=error.code)
    metrics.ERRORS.labels("", error.code).inc()
    body = error_body(error.code, error.message, request_id)
    fields = {"content-type": "application/json", "content-length": str(len(body)), "x-request-id": request_id}
    fields |= {**headers_of(error), "connection": "close"}
    return EarlyError(status, [(name.encode(), value.encode()) for name, value in fields.items()], body)


def log_invalid(client: str) -> None:
    """Logs that bytes are not HTTP, with the address of the client."""
    details = {"message": INVALID_HTTP, "client": client}
    limited_log.write(logging.INFO, "request refused", lambda: details, status=400, code="invalid_http")


def log_dropped(error: RedbatchError | None, client: str) -> None:
    """Logs that what is wrong with bytes is not answered, since other answers are due; None: they are not HTTP."""
    message, code = (INVALID_HTTP, "invalid_http") if error is None else (error.log_message, error.code)
    limited_log.write(logging.INFO, "request dropped", lambda: {"message": message, "client": client}, code=code)


def log_fault(error: HttpParserError) -> None:
    """Logs an exception in a callback of the parser, which hides it, unless that refuses a request or its URL."""
    cause = error.__context__
    is_refusal = cause is None or isinstance(cause, (RedbatchError, HttpParserError))
    if isinstance(error, HttpParserCallbackError) and not is_refusal:
        details = {"traceback": describe_briefly(error)}
        limited_log.write(logging.ERROR, "parsing failed", lambda: details, error=type(cause).__name__)
