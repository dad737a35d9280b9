"""What a connection beyond the limits is for: probes, so that an orchestrator does not restart a busy gateway."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from api import metrics
from api.errors import error_body, headers_of, status_of
from api.http.lingering_close import close_connection
from shared.errors import TooManyConnectionsError
from shared.process.limited_log import LimitedLog

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PROBES = frozenset(("health", "livez", "ping", "readyz"))
"""The last part of their paths, since a prefix may be before it: an application that knows the prefix comes later."""

RETRY_AFTER_S = 1.0

limited_log = LimitedLog()


class ProbesOnlyApp:
    """An ASGI application that answers all requests but probes with a 503. Each answer closes the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        send = close_connection(send)
        if scope["path"].rpartition("/")[2] in PROBES:
            await self._app(scope, receive, send)
            return
        error = TooManyConnectionsError("Too many connections: try again soon.", retry_after_s=RETRY_AFTER_S)
        status, request_id = status_of(error), secrets.token_hex(16)
        metrics.ERRORS.labels("", error.code).inc()
        kind = {"status": status, "code": error.code}
        limited_log.write(logging.ERROR, "request failed", lambda: {"request_id": request_id}, **kind)
        body = error_body(error.code, error.message, request_id)
        fields = {"content-type": "application/json", "x-request-id": request_id, "content-length": str(len(body))}
        headers = [(name.encode(), value.encode()) for name, value in (fields | headers_of(error)).items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
