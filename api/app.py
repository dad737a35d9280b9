"""The FastAPI application of a gateway."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from api.console.action_routes import ACTION_PREFIXES
from api.console.routes import CONSOLE_READS
from api.dialects.operations import SECURITY, TAGS
from api.dialects.response_models import NULL, replace_values
from api.dialects.schemas import complete
from api.handler import serve
from api.http.auth import ApiKeyAuthenticator
from api.http.client_connection import client_address
from api.http.error_responses import refuse
from api.http.lingering_close import LingeringCloseResponse, close_connection
from api.http.request_id import request_id_of
from api.http.request_log import ARRIVAL, TENANT
from api.http.root_path import restore_root_path, route_path
from api.pages.routes import PAGE_PATHS, STATIC_FILES, STATIC_PATH
from api.routes import DIALECTS, allowed_methods, dialect_of, route_hint, route_template, router, unlisted_template
from api.state import State
from api.tenants import Tenant
from api.usage_recording import written_usage
from shared.errors import InvalidRequestError, MethodNotAllowedError, NotFoundError, RedbatchError
from shared.process.version import __version__

if TYPE_CHECKING:
    from starlette.types import Lifespan, Receive, Scope, Send

UNAUTHENTICATED_PATHS = frozenset(("/", "/health", "/livez", "/readyz", "/ping", *PAGE_PATHS))
"""Probes send no API key, and neither does a browser that opens a page."""

ERRORS: dict[int, type[RedbatchError]] = {404: NotFoundError, 405: MethodNotAllowedError}


class DocumentedFastAPI(FastAPI):
    """An application whose routes parse bodies by hand, and refer to the schemas of these by name."""

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI description, with the schemas of bodies and how to send an API key."""
        if self.openapi_schema is None:
            started = super().openapi()
            self.openapi_schema = None  # should the rest fail
            self.openapi_schema = replace_values(complete(started), NULL, None)
        description: dict[str, Any] = self.openapi_schema
        description["components"]["securitySchemes"] = SECURITY
        description["security"] = _security(getattr(self.state, "redbatch", None))
        for path in UNAUTHENTICATED_PATHS & description["paths"].keys():
            description["paths"][path]["get"]["security"] = []
        return description


def _security(state: State | None) -> list[dict[str, list[str]]]:
    """Returns what a request needs by default: a key in either header, or nothing; either where no gateway runs."""
    keys: list[dict[str, list[str]]] = [{name: []} for name in SECURITY]
    if state is None:
        return [{}, *keys]
    return [] if state.authenticator is None else keys


def make_app(state: State) -> FastAPI:
    """Returns the application. While it runs, it serves the queues of the state."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await state.queues.start()
        state.history.start()
        async with written_usage(state):
            yield
        await state.history.stop()
        await state.queue_states.stop()
        await state.queue_lists.stop()
        await state.tenant_report.stop()
        await state.lease_report.stop()
        await state.queues.stop()

    app = _routes(lifespan)
    app.state.redbatch = state
    app.add_exception_handler(HTTPException, _http_error)
    return app


def description() -> dict[str, Any]:
    """Returns the OpenAPI description of all routes."""
    return _routes().openapi()


def _routes(lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    app = DocumentedFastAPI(
        title="Redbatch",
        version=__version__,
        summary="Text embeddings, batched over a cluster",
        lifespan=lifespan,
        openapi_tags=TAGS,
        docs_url=None,  # those of FastAPI load files from other hosts: see api.pages
        redoc_url=None,
        telemetry={"auto_configure": False, "logs": False, "metrics": False, "tracing": False},  # see api.tracing
        redirect_slashes=False,  # behind TLS, clients would be sent to plain http, with their texts
    )
    app.include_router(router)
    app.mount(STATIC_PATH, STATIC_FILES)
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """Returns the error of an unknown route or method, in the dialect of the path."""
    status = error.status_code if isinstance(error, HTTPException) else 0
    path = route_path(request.scope)
    hint = route_hint(path)
    if path == "/metrics":
        hint = f"the metrics of this gateway are on its admin port, {request.app.state.redbatch.admin_port}."
    methods = allowed_methods(path) if status == HTTPStatus.METHOD_NOT_ALLOWED else []
    if methods:
        hint = f"use {' or '.join(methods)}."
    quoted = f"{request.method} {path}"
    unknown = ERRORS.get(status, InvalidRequestError)(f"{quoted}: {hint}", quoted=quoted)
    response = refuse(request, dialect_of(path), unknown, request_id_of(request.headers))
    if methods:
        response.headers["allow"] = ", ".join(methods)
    return response


async def _authentication_error(request: Request, authenticator: ApiKeyAuthenticator) -> Response | None:
    """Returns the answer to a client without a valid API key, on a route that takes any key; None for other clients."""
    path = request.scope["path"]  # not that of the URL, which depends on the header Host
    if path in UNAUTHENTICATED_PATHS or path.startswith(ACTION_PREFIXES):
        return None
    try:
        key = await authenticator.admit(request.headers, client_address(request.scope), None)
    except RedbatchError as error:
        arrived_at, template = request.scope["state"][ARRIVAL]
        request.scope["state"][ARRIVAL] = (arrived_at, template or route_template(path))
        return refuse(request, dialect_of(path), error, request_id_of(request.headers), LingeringCloseResponse)
    request.scope["state"][TENANT] = Tenant(key.tenant or key.key_id, key_id=key.key_id)
    return None


class FastPathApp:
    """The outermost ASGI application, with a fast path for embedding requests, and one for what open consoles ask for.

    Both go past the framework's router and its middleware, which cost more CPU than the rest of the gateway's work:
    embedding requests go straight to `serve`, and those of consoles to the function of their route. While the gateway
    drains, each answer has `Connection: close`, so that clients open their next connection to another gateway.
    """

    def __init__(self, app: FastAPI, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        dialect = DIALECTS.get(scope["path"])
        if dialect is not None and scope["method"] == "POST":
            scope["state"][ARRIVAL] = (time.monotonic(), dialect.route)
            await serve(scope, receive, send, self._state, dialect)
            return
        scope["state"][ARRIVAL] = (time.monotonic(), unlisted_template(scope["path"]))
        send = close_connection(send) if self._state.draining else send
        authenticator = self._state.authenticator
        answer = None if authenticator is None else await _authentication_error(Request(scope), authenticator)
        if answer is None and scope["path"].endswith("\n"):  # routes match it: their patterns end in `$`
            answer = await _http_error(Request(scope), HTTPException(404))
        restore_root_path(scope)
        route = CONSOLE_READS.get(route_path(scope)) if scope["method"] == "GET" else None
        if answer is None and route is not None:
            scope.update(app=self._app, route=route)  # as the framework does: logs and spans have the route
            answer = await route.endpoint(Request(scope))
        await (answer or self._app)(scope, receive, send)
