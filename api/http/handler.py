"""The way of one request through a gateway: read, parse, embed, answer, in the words of whoever asks."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.http.body import BodyUnread, Bounds, read_body
from api.http.protocol import PEER, QUEUE, Peer
from api.errors import headers_of
from api.http.lingering_close import LastWords
from api.dialects.openapi import JSON
from api.tenants import NOBODY, by_header, by_key
from shared.errors import InternalError, RedbatchError, Unavailable

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from api.dialects.request import Asked
    from api.dispatch.dispatcher import Answered
    from api.settings import GatewaySettings
    from api.state import State

log = structlog.get_logger()

CLIENT_CLOSED_REQUEST = 499
LARGE_BODY_BYTES = 64 * 1024
"""To join and parse larger ones may take tens of milliseconds: one has its turn, and then as long all others."""

LEAVING_RETRY_S = 0.1
"""Another gateway can take it at once."""

_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


class Dialect(Protocol):
    """How clients of one kind ask, and how they are answered. `route` names them in metrics."""

    @property
    def route(self) -> str:
        """Where they ask."""

    def for_body(self, body: bytes) -> Dialect:
        """Returns whose words this body is in, where some may ask in others."""

    def most_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""

    def answer(self, asked: Asked, answered: Answered) -> bytes:
        """Returns the body of an answer with what was asked for."""

    def headers(self, state: State, asked: Asked, answered: Answered, took_s: float) -> dict[str, str]:
        """Returns what is told beside it."""

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""


@dataclass(slots=True)
class Exchange:
    """A request and how a gateway answers it: under `own_id` in Redis, under the client's `request_id` in logs.

    `headers` are those of the request, by names in lower case: to look one up in the framework's takes longer.
    """

    request: Request
    state: State
    headers: Mapping[str, str]
    dialect: Dialect
    request_id: str
    own_id: str
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
        metrics.answered(dialect.route, response.status_code).inc()
        metrics.DURATION.observe(took_s)


async def respond(request: Request, state: State, dialect: Dialect) -> Response:
    """Returns the answer to a request, whatever comes of it."""
    own_id = secrets.token_hex(16)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}
    exchange = Exchange(request, state, headers, dialect, request_id_of(headers, own_id), own_id, time.monotonic())
    try:
        return await _uncancelled(exchange)
    except RedbatchError as error:
        return _refused(exchange, error)
    except BodyUnread as unread:
        return _refused(exchange, unread.error, LastWords)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except Exception:
        log.exception("request failed", request_id=exchange.request_id)
        wrong = InternalError("Something went wrong; the logs say what.")
        return counted_error(request, exchange.dialect, wrong, exchange.request_id)


def error_response(
    dialect: Dialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error in the shape that these clients know."""
    status, body = dialect.refusal(error, request_id)
    return kind(body, status, {"x-request-id": request_id, **headers_of(error)}, JSON)


def counted_error(
    request: Request, dialect: Dialect, error: RedbatchError, request_id: str, kind: type[Response] = Response
) -> Response:
    """Returns an error as `error_response` does, and counts it: those of the routes whose requests are counted."""
    metrics.ERRORS.labels(request.scope["state"].get(QUEUE, ""), error.code).inc()
    return error_response(dialect, error, request_id, kind)


def _refused(exchange: Exchange, error: RedbatchError, kind: type[Response] = Response) -> Response:
    # Frames in it refer to the error: in such a circle the body would stay in memory for long.
    error.__traceback__ = None
    response = counted_error(exchange.request, exchange.dialect, error, exchange.request_id, kind)
    log.info("refused", request_id=exchange.request_id, code=error.code, status=response.status_code)
    return response


async def _uncancelled(exchange: Exchange) -> Response:
    """Answers. A cancel says that the client has left, or that the grace of a gateway that drains is over."""
    try:
        return await _answer(exchange)
    except asyncio.CancelledError:
        if exchange.request.scope["state"][PEER].gone:
            raise ClientDisconnect from None
        if exchange.state.draining:
            raise Unavailable("This gateway leaves: send it again.", retry_after_s=LEAVING_RETRY_S) from None
        raise


async def _answer(exchange: Exchange) -> Response:
    request, state = exchange.request, exchange.state
    peer: Peer = request.scope["state"][PEER]
    try:
        if state.gate is None:
            tenant = by_header(exchange.headers, state.settings)
        else:
            key = await state.gate.admit(exchange.headers, address_of(request.scope), "embed")
            tenant = by_key(key, state.settings)
    except RedbatchError as error:
        raise BodyUnread(error) from None
    asked = await _asked(exchange, peer)
    if tenant is not NOBODY:
        asked = asked._replace(tenant=tenant)
    queue = state.queues.named(asked.model)
    request.scope["state"][QUEUE] = queue.name
    peer.watch()
    try:
        if peer.gone:
            raise ClientDisconnect
        answered = await queue.answer(asked, exchange.own_id)
    finally:
        peer.unwatch()
    headers = exchange.dialect.headers(state, asked, answered, time.monotonic() - exchange.began)
    headers["x-request-id"] = exchange.request_id
    return Response(exchange.dialect.answer(asked, answered), 200, headers, JSON)


async def _asked(exchange: Exchange, peer: Peer) -> Asked:
    """Returns what a body asks for. Raises BodyUnread, or RequestError."""
    state, settings = exchange.state, exchange.state.settings
    most = exchange.dialect.most_bytes(settings)
    pieces = await read_body(exchange.request, exchange.headers, Bounds(most, settings.body_timeout_s, state.room))
    size = sum(map(len, pieces))
    try:
        if size < LARGE_BODY_BYTES:
            return _parse(exchange, pieces)
        async with state.parsing, breathing_space():
            if peer.gone:
                raise ClientDisconnect
            return _parse(exchange, pieces)
    finally:
        state.room.give_back(size)


def address_of(scope: Scope) -> str:
    """Returns where a request comes from."""
    client = scope.get("client")
    return client[0] if client else ""


def _parse(exchange: Exchange, pieces: list[bytes]) -> Asked:
    body = b"".join(pieces)
    pieces.clear()  # or a large one would be there twice
    exchange.dialect = exchange.dialect.for_body(body)
    return exchange.dialect.parse(body, exchange.headers, exchange.state.settings)


@asynccontextmanager
async def breathing_space() -> AsyncIterator[None]:
    """Leaves as much time to everybody else as the block has taken."""
    began = time.monotonic()
    try:
        yield
    finally:
        await asyncio.sleep(time.monotonic() - began)
