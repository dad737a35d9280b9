"""The prefix under which a proxy serves this gateway, for proxies that pass it on and for those that remove it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ROOT_PATH: ContextVar[str] = ContextVar("root_path", default="")
"""The prefix, for the paths in answers."""


class RootPathApp:
    """An outermost ASGI application that removes the prefix from paths that have it.

    Args:
        app: sees paths without the prefix.
        root_path: such as /embeddings-service.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] == "http":
            ROOT_PATH.set(self._root_path)
            rest = scope["path"].removeprefix(self._root_path)
            if not rest or rest.startswith("/"):
                scope["path"] = rest or "/"
        await self._app(scope, receive, send)


def restore_root_path(scope: Scope) -> None:
    """Adds the prefix to the path of a request, as ASGI and FastAPI expect it beside `root_path`."""
    root_path = ROOT_PATH.get()
    if root_path:
        scope["root_path"], scope["path"] = root_path, root_path + scope["path"]


def route_path(scope: Scope) -> str:
    """Returns the path of a request without the prefix."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
