"""What a connection beyond the limits is for: probes, so that an orchestrator does not restart a busy gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.http.client_connection import client_address
from api.http.early_error import early_error
from api.http.lingering_close import close_connection
from shared.errors import TooManyConnectionsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATHS = ("/health", "/livez", "/ping", "/readyz")
METHODS = frozenset(("GET", "HEAD"))

RETRY_AFTER_S = 1.0


def probe_paths(root_path: str) -> frozenset[str]:
    """Returns the paths of probes, with and without the prefix under which a proxy serves the gateway."""
    return frozenset(prefix + path for prefix in ("", root_path) for path in PATHS)


class ProbesOnlyApp:
    """An ASGI application that answers all requests but probes with a 503. Each answer closes the connection.

    Args:
        app: answers probes: at once, so that the connection is soon free for the next one.
        paths: of the probes.
    """

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        send = close_connection(send)
        if scope["method"] in METHODS and scope["path"] in self._paths:
            await self._app(scope, receive, send)
            return
        error = TooManyConnectionsError("Too many connections: try again soon.", retry_after_s=RETRY_AFTER_S)
        answer = early_error(error, client_address(scope))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.fields})
        await send({"type": "http.response.body", "body": answer.body})
