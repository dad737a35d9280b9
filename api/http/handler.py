"""The way of one request through a gateway: read, parse, embed, answer, in the words of whoever asks."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.dialects.base import Dialect
from api.dialects.openapi import JSON
from api.errors import headers_of
from api.http.body import BodyLimits, BodyUnreadError, read_body
from api.http.lingering_close import LingeringCloseResponse
from api.http.protocol import CLIENT, QUEUE, Client
from api.tenants import ANONYMOUS
from shared.errors import InternalError, RedbatchError, UnavailableError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from api.dialects.request import InferenceRequest
    from api.state import State

log = structlog.get_logger()

CLIENT_CLOSED_REQUEST = 499
LARGE_BODY_BYTES = 64 * 1024
"""To join and parse larger ones may take tens of milliseconds: one has its turn, and then as long all others."""

LEAVING_RETRY_S = 0.1
"""Another gateway can take it at once."""

_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


@dataclass(slots=True)
class Exchange:
    """A request and how a gateway answers it: under `redis_id` in Redis, under the client's `request_id` in logs.

    `headers` are those of the request, by names in lower case: to look one up in the framework's takes longer.
    """

    request: Request
    state: State
    headers: Mapping[str, str]
    dialect: Dialect
    request_id: str
    redis_id: str
    began: float


def request_id_of(headers: Mapping[str, str], own: str = "") -> str:
    """Returns the client's X-Request-Id if it is well formed, else `own` or a new one. It is for logs alone."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.match(given) else own or secrets.token_hex(16)


async def serve(scope: Scope, receive: Receive, send: Send, state: State, dialect: Dialect) -> None:
    """Answers one request, as ASGI. What took so long is counted after the answer, for which nobody waits."""
    began = time.monotonic()
    response = await respond(Request(scope, receive, send), state, dialect)
    if state.draining:  # perhaps only since it was asked
        response.headers["connection"] = "close"
    took_s = time.monotonic() - began
    try:
        await response(scope, receive, send)
    finally:
        metrics.answers_counter(dialect.route, response.status_code).inc()
        metrics.DURATION.observe(took_s)


async def respond(request: Request, state: State, dialect: Dialect) -> Response:
    """Returns the answer to a request, whatever comes of it."""
    redis_id = secrets.token_hex(16)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}
    exchange = Exchange(request, state, headers, dialect, request_id_of(headers, redis_id), redis_id, time.monotonic())
    return await answer_errors(_uncancelled(exchange), request, exchange.request_id, lambda: exchange.dialect)


async def answer_errors(
    answer: Awaitable[Response], request: Request, request_id: str, dialect: Callable[[], Dialect]
) -> Response:
    """Returns the response of `answer`; if it raises an error, the error as a response, which is counted and logged.

    `dialect` returns the error's shape: a function, because a request may set it while its body is parsed.
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
    dialect: Dialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error in the shape that these clients know."""
    status, body = dialect.refusal(error, request_id)
    return kind(body, status, {"x-request-id": request_id, **headers_of(error)}, JSON)


def _counted_error(
    request: Request, dialect: Dialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error as `error_response` does, and counts it: for the routes whose requests are counted."""
    metrics.ERRORS.labels(request.scope["state"].get(QUEUE, ""), error.code).inc()
    return error_response(dialect, error, request_id, kind)


def _refuse(
    request: Request, dialect: Dialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    # Frames in the traceback refer to the error: such a cycle would keep the body in memory for long.
    error.__traceback__ = None
    response = _counted_error(request, dialect, error, request_id, kind)
    log.info("refused", request_id=request_id, code=error.code, status=response.status_code)
    return response


async def _uncancelled(exchange: Exchange) -> Response:
    """Answers. A cancel says that the client has left, or that the grace of a gateway that drains is over."""
    try:
        return await _answer(exchange)
    except asyncio.CancelledError:
        if exchange.request.scope["state"][CLIENT].gone:
            raise ClientDisconnect from None
        if exchange.state.draining:
            raise UnavailableError("This gateway leaves: send it again.", retry_after_s=LEAVING_RETRY_S) from None
        raise


async def _answer(exchange: Exchange) -> Response:
    request, state = exchange.request, exchange.state
    peer: Client = request.scope["state"][CLIENT]
    try:
        tenant = await state.authenticate(exchange.headers, client_address(request.scope), "embed")
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    asked = await _asked(exchange, peer)
    if tenant is not ANONYMOUS:
        asked = asked._replace(tenant=tenant)
    queue = state.queues.of_model(asked.model)
    request.scope["state"][QUEUE] = queue.name
    peer.watch()
    try:
        if peer.gone:
            raise ClientDisconnect
        answered = await queue.answer(asked, exchange.redis_id)
    finally:
        peer.unwatch()
    headers = exchange.dialect.headers(state, asked, answered, time.monotonic() - exchange.began)
    headers["x-request-id"] = exchange.request_id
    return Response(exchange.dialect.answer(asked, answered), 200, headers, JSON)


async def _asked(exchange: Exchange, peer: Client) -> InferenceRequest:
    """Returns what a body asks for. Raises BodyUnreadError, or RequestError."""
    state, settings = exchange.state, exchange.state.settings
    most = exchange.dialect.max_bytes(settings)
    pieces = await read_body(
        exchange.request, exchange.headers, BodyLimits(most, settings.body_timeout_s, state.body_budget)
    )
    size = sum(map(len, pieces))
    try:
        if size < LARGE_BODY_BYTES:
            return _parse(exchange, pieces)
        async with state.parse_lock, yield_as_long():
            if peer.gone:
                raise ClientDisconnect
            return _parse(exchange, pieces)
    finally:
        state.body_budget.release(size)


def client_address(scope: Scope) -> str:
    """Returns where a request comes from."""
    client = scope.get("client")
    return client[0] if client else ""


def _parse(exchange: Exchange, pieces: list[bytes]) -> InferenceRequest:
    body = b"".join(pieces)
    pieces.clear()  # or a large one would be there twice
    exchange.dialect = exchange.dialect.for_body(body)
    return exchange.dialect.parse(body, exchange.headers, exchange.state.settings)


@asynccontextmanager
async def yield_as_long() -> AsyncIterator[None]:
    """Leaves as much time to everybody else as the block has taken."""
    began = time.monotonic()
    try:
        yield
    finally:
        await asyncio.sleep(time.monotonic() - began)
