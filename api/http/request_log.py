"""The log lines of requests: one for each that is refused or fails, and with `access_log` one for every request.

A line has no text that a client chose, except the id of the request and the tenant, whose characters are limited.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from api.http.answer_cycle import answered_request_id, begins_answer
from api.http.client_connection import client_address
from api.http.protocol import QUEUE
from api.tenants import ANONYMOUS, Tenant
from shared.process.limited_log import LimitedLog
from shared.process.tracebacks import describe_briefly

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from shared.errors import RedbatchError

log, limited_log = structlog.get_logger(), LimitedLog()

ARRIVAL, TENANT, ERROR = "arrival", "tenant", "error"
"""Keys in the `state` of a request's scope: when it arrived (monotonic, s) and its route, if that is known by then; its
Tenant, once that is known; and, if AccessLogApp logs the request, the fields of its error.
"""

PROBES = ("/readyz", "/livez")
CLIENT_CLOSED_REQUEST = 499
OVERLOADED = 429
NO_ROUTE = "unknown"
"""The route of a request to a path that there is not: the path is the client's text."""

SERVER_ERROR = 500
BAD_REQUEST = 400
ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
_DIGITS = re.compile(r"\d+")
"""In the messages of one kind of error, numbers differ: times, sizes, indices."""


def log_error(
    scope: Scope, status: int, error: RedbatchError, request_id: str, failure: Exception | None = None
) -> None:
    """Logs a request that is answered with an error, unless AccessLogApp will.

    Args:
        scope: of the request.
        status: of the answer.
        error: what is answered.
        request_id: of the request.
        failure: the exception that led to the error, if any; its message, which may quote the client, is left out.
    """
    message, origin = error.log_message, dict(error.log_fields)
    kind = {"code": error.code, "key_id": error.key_id, "message": _DIGITS.sub("N", message)}
    kind["error"] = origin.pop("error", "")
    details = {"message": message, **origin}
    if failure is not None:
        kind["error"], details["exception"] = type(failure).__name__, describe_briefly(failure)
    _log_error(scope, status, request_id, kind, details)


def log_departure(scope: Scope, request_id: str) -> None:
    """Logs a request whose client has left before the answer, unless AccessLogApp will."""
    _log_error(scope, CLIENT_CLOSED_REQUEST, request_id, {"code": "client_left"}, {})


def _log_error(scope: Scope, status: int, request_id: str, kind: Mapping[str, str], details: Mapping[str, str]) -> None:
    """Logs an error; only one of many errors of the same kind."""
    errors: dict[str, str] | None = scope["state"].get(ERROR)
    if errors is not None:
        errors |= _known({**kind, **details, "request_id": request_id})  # what is unknown hides no field of the request
        return
    fields = _known(_request_fields(scope, status)) | _known(kind)
    limited_log.write(
        _level(status),
        _event(status),
        lambda: _known({**details, "request_id": request_id, **_client_fields(scope)}),
        **fields,
    )


class AccessLogApp:
    """An ASGI application that logs each request once it is answered; what answers it logs no line then.

    Of the probes with one outcome it logs the first, and their number every ten seconds: `redbatch up` and load
    balancers send several a second, and what they are refused for while a model loads is no error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        errors: dict[str, str] = {}
        scope["state"][ERROR] = errors
        status, request_id = SERVER_ERROR, ""

        async def send_noted(message: Message) -> None:
            nonlocal status, request_id
            if begins_answer(message):
                status = message["status"]
                request_id = answered_request_id(message)
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            fields = _request_fields(scope, status)
            if scope["path"] in PROBES:
                limited_log.write(logging.INFO, "probe answered", **_known(fields))
            else:
                fields |= {**_client_fields(scope), **errors}
                log.log(_level(status), _event(status), **_known({"request_id": request_id} | _known(fields)))


def _level(status: int) -> int:
    """Returns the level: an error is the cluster's, and a warning says that it has too much to do."""
    if status >= SERVER_ERROR:
        return logging.ERROR
    return logging.WARNING if status == OVERLOADED else logging.INFO


def _event(status: int) -> str:
    if status >= SERVER_ERROR:
        return "request failed"
    if status == CLIENT_CLOSED_REQUEST:
        return "client left"
    return "request refused" if status >= BAD_REQUEST else "request served"


def _request_fields(scope: Scope, status: int) -> dict[str, Any]:
    """Returns the fields that the requests of one kind share. The route is its template: a path may hold anything."""
    state = scope["state"]
    return {
        "route": state.get(ARRIVAL, (0.0, ""))[1] or getattr(scope.get("route"), "path_format", NO_ROUTE),
        "method": scope["method"],
        "status": status,
        "model": state.get(QUEUE, ""),
        "key_id": _tenant(scope).key_id,
    }


def _client_fields(scope: Scope) -> dict[str, Any]:
    """Returns the fields that differ among requests of one kind."""
    arrived_at, _ = scope["state"].get(ARRIVAL, (None, ""))
    took_ms = None if arrived_at is None else round(1000 * (time.monotonic() - arrived_at), 1)
    address = client_address(scope)
    client = address if ADDRESS.fullmatch(address) else ""  # a proxy may pass on what its client made up
    return {"tenant": _tenant(scope).name, "client": client, "took_ms": took_ms}


def _tenant(scope: Scope) -> Tenant:
    tenant: Tenant = scope["state"].get(TENANT, ANONYMOUS)
    return tenant


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in ("", None)}
