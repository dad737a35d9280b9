"""The FastAPI application of a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from api.http.auth import Gate
from api.http.lingering_close import LastWords
from api.dialects.openapi import SCHEMAS, SECURITY
from api.routes import SERVED, dialect_of, router
from api.http.handler import address_of, error_response, request_id_of, serve
from api.state import State
from redbatch import __version__
from shared.errors import InvalidRequest, MethodNotAllowed, NotFound, RedbatchError

if TYPE_CHECKING:
    from starlette.types import Lifespan, Message, Receive, Scope, Send

OPEN = frozenset(("/", "/health", "/livez", "/readyz", "/ping"))
"""Who probes has no key."""

ERRORS: dict[int, type[RedbatchError]] = {404: NotFound, 405: MethodNotAllowed}


class Described(FastAPI):
    """An application whose routes read bodies by hand, and refer to schemas by name."""

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI description, with those schemas."""
        described = super().openapi()
        described["components"] = {"schemas": SCHEMAS, "securitySchemes": SECURITY}
        described["security"] = [{}, *({name: []} for name in SECURITY)]
        return described


def make_app(state: State) -> FastAPI:
    """Returns the application. Its queues are looked after while it runs."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await state.queues.start()
        yield
        await state.queues.stop()

    app = _routes(lifespan)
    app.state.redbatch = state
    app.add_exception_handler(HTTPException, _http_error)
    return app


def description() -> dict[str, Any]:
    """Returns the OpenAPI description of all routes."""
    return _routes().openapi()


def _routes(lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    app = Described(
        title="Redbatch",
        version=__version__,
        summary="Text embeddings, batched over a cluster",
        lifespan=lifespan,
        telemetry={"auto_configure": False, "logs": False, "metrics": False, "tracing": False},  # api.tracing does it
        redirect_slashes=False,  # behind TLS it would send clients, with their texts, to plain http
    )
    app.include_router(router)
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """Tells an unknown route or method in the words of whoever asks."""
    status = error.status_code if isinstance(error, HTTPException) else 0
    told = ERRORS.get(status, InvalidRequest)(f"{request.method} {request.url.path}: see /docs for what there is.")
    response = error_response(dialect_of(request.url.path), told, request_id_of(request.headers))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _refusal(request: Request, gate: Gate) -> Response | None:
    """Returns the answer to somebody who has no key, on a route that takes any; None if it is let through."""
    path = request.scope["path"]  # not that of the URL, which the header Host has a part in
    if path in OPEN:
        return None
    try:
        await gate.admit(request.headers, address_of(request.scope), None)
    except RedbatchError as error:
        return error_response(dialect_of(path), error, request_id_of(request.headers), LastWords)
    return None


class Front:
    """What every request meets first.

    What embeds goes straight to its function: to find it by the framework's router and its middleware costs more CPU
    than the rest of the gateway's work. Once the gateway drains, each answer says `Connection: close`, so that clients
    open their next connection elsewhere.
    """

    def __init__(self, app: FastAPI, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        dialect = SERVED.get(scope["path"])
        if dialect is not None and scope["method"] == "POST":
            await serve(scope, receive, send, self._state, dialect)
            return
        send = self._closing(send) if self._state.draining else send
        refusal = None if self._state.gate is None else await _refusal(Request(scope), self._state.gate)
        await (refusal or self._app)(scope, receive, send)

    def _closing(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0] != b"connection"]
                message["headers"] = [*kept, (b"connection", b"close")]
            await send(message)

        return sending
