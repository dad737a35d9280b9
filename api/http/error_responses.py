"""Errors as responses: in the client's dialect, logged, and counted."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.dialects.base import BaseDialect
from api.dialects.headers import JSON
from api.errors import headers_of
from api.http.body import BodyUnreadError
from api.http.lingering_close import LingeringCloseResponse
from api.http.protocol import QUEUE
from api.http.request_log import CLIENT_CLOSED_REQUEST, log_departure, log_error
from shared.errors import InternalError, RedbatchError


def answer_error(error: Exception, request: Request, dialect: BaseDialect, request_id: str) -> Response:
    """Returns the response to a request that failed with an error, which is counted and logged.

    The response to a client that has left has the status CLIENT_CLOSED_REQUEST, and is not counted as an error.
    """
    if isinstance(error, ClientDisconnect):
        log_departure(request.scope, request_id)
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    # Frames in a traceback refer to the error: such a cycle would keep the body in memory for long.
    if isinstance(error, BodyUnreadError):
        refusal = error.error.with_traceback(None)
        return _refuse_counted(request, dialect, refusal, request_id, LingeringCloseResponse)
    if isinstance(error, RedbatchError):
        return _refuse_counted(request, dialect, error.with_traceback(None), request_id)
    internal = InternalError("Internal error: see the gateway's logs.")
    return _refuse_counted(request, dialect, internal, request_id, failure=error)


def error_response(
    dialect: BaseDialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error in the format of a dialect."""
    status, body = dialect.encode_error(error, request_id)
    return kind(body, status, {"x-request-id": request_id, **headers_of(error)}, JSON)


def refuse(
    request: Request,
    dialect: BaseDialect,
    error: RedbatchError,
    request_id: str,
    kind: type[Response] = Response,
    failure: Exception | None = None,
) -> Response:
    """Returns an error as `error_response` does, and logs it; `failure` is the exception that led to it, if any."""
    response = error_response(dialect, error, request_id, kind)
    log_error(request.scope, response.status_code, error, request_id, failure)
    return response


def _refuse_counted(
    request: Request,
    dialect: BaseDialect,
    error: RedbatchError,
    request_id: str,
    kind: type[Response] = Response,
    failure: Exception | None = None,
) -> Response:
    """Returns and logs an error as `refuse` does, and counts it: for the routes whose requests are counted."""
    metrics.ERRORS.labels(request.scope["state"].get(QUEUE, ""), error.code).inc()
    return refuse(request, dialect, error, request_id, kind, failure)
