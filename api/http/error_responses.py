"""Errors as responses: in the client's dialect, counted and logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.dialects.base import BaseDialect
from api.dialects.operations import JSON
from api.errors import headers_of
from api.http.body import BodyUnreadError
from api.http.lingering_close import LingeringCloseResponse
from api.http.protocol import QUEUE
from shared.errors import InternalError, RedbatchError

log = structlog.get_logger()

CLIENT_CLOSED_REQUEST = 499


async def answer_errors(
    answer: Awaitable[Response], request: Request, request_id: str, dialect: Callable[[], BaseDialect]
) -> Response:
    """Returns the response of `answer`; if it raises an error, the error as a response, which is counted and logged.

    The response to a client that has left has the status CLIENT_CLOSED_REQUEST, and is not counted as an error.
    `dialect` returns the dialect of the error. It is a function, because parsing the body may change the dialect.
    """
    try:
        return await answer
    except RedbatchError as error:
        return _refuse(request, dialect(), error, request_id)
    except BodyUnreadError as unread:
        return _refuse(request, dialect(), unread.error, request_id, LingeringCloseResponse)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except Exception:
        log.exception("request failed", request_id=request_id)
        return _counted_error(request, dialect(), InternalError("Internal error: see the gateway's logs."), request_id)


def error_response(
    dialect: BaseDialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error in the format of a dialect."""
    status, body = dialect.encode_error(error, request_id)
    return kind(body, status, {"x-request-id": request_id, **headers_of(error)}, JSON)


def _counted_error(
    request: Request, dialect: BaseDialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error as `error_response` does, and counts it: for the routes whose requests are counted."""
    metrics.ERRORS.labels(request.scope["state"].get(QUEUE, ""), error.code).inc()
    return error_response(dialect, error, request_id, kind)


def _refuse(
    request: Request, dialect: BaseDialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    # Frames in the traceback refer to the error: such a cycle would keep the body in memory for long.
    error.__traceback__ = None
    response = _counted_error(request, dialect, error, request_id, kind)
    log.info("refused", request_id=request_id, code=error.code, status=response.status_code)
    return response
