"""The routes of the main port."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import structlog
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.answer import embed_body, timing_headers
from api.body import BodyUnread, parse_embed, read_body
from api.connection import PEER, Peer
from api.errors import error_body, retry_headers, status_of
from api.last_words import LastWords
from api.openapi import EMBED_REQUEST, EMBED_RESPONSES, HEALTH_RESPONSES, JSON
from shared.errors import InternalError, RedbatchError, Unavailable

if TYPE_CHECKING:
    from api.state import State

log = structlog.get_logger()

CLIENT_CLOSED_REQUEST = 499
LARGE_BODY_BYTES = 64 * 1024
"""Larger ones may take tens of milliseconds to parse: one is parsed at a time, and half of the time is for others."""

LEAVING_RETRY_S = 0.1
"""Another gateway can take it at once."""

_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")

router = APIRouter()


def request_id_of(request: Request) -> str:
    """Returns the client's X-Request-Id if it is well formed, else a new one. It is for logs alone."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.match(given) else secrets.token_hex(16)


def error_response(error: RedbatchError, request_id: str, kind: type[Response] = Response) -> Response:
    """Returns an error in the one shape."""
    headers = {"x-request-id": request_id, **retry_headers(error)}
    return kind(error_body(error.code, error.message, request_id), status_of(error), headers, JSON)


def _refused(error: RedbatchError, request_id: str, kind: type[Response] = Response) -> Response:
    response = error_response(error, request_id, kind)
    log.info("refused", request_id=request_id, code=error.code, status=response.status_code)
    return response


@router.post("/embed", summary="Embed one text or many", responses=EMBED_RESPONSES, openapi_extra=EMBED_REQUEST)
async def embed(request: Request) -> Response:
    """Turns texts into vectors."""
    began = time.monotonic()
    request_id = request_id_of(request)
    try:
        response = await _embed(request, request_id)
    except RedbatchError as error:
        response = _refused(error, request_id)
    except BodyUnread as unread:
        response = _refused(unread.error, request_id, LastWords)
    except ClientDisconnect:
        response = Response(status_code=CLIENT_CLOSED_REQUEST)
    except Exception:
        log.exception("request failed", request_id=request_id)
        response = error_response(InternalError("Something went wrong; the logs say what."), request_id)
    metrics.answered("/embed", response.status_code).inc()
    metrics.DURATION.observe(time.monotonic() - began)
    return response


async def _embed(request: Request, request_id: str) -> Response:
    state: State = request.app.state.redbatch
    peer: Peer = request.scope["state"][PEER]
    body = await read_body(request, state.settings.max_body_bytes, state.settings.body_timeout_s)
    if len(body) < LARGE_BODY_BYTES:
        asked = parse_embed(body, request.headers, state.settings)
    else:
        async with state.parsing, breathing_space():
            if peer.gone:
                raise ClientDisconnect
            asked = parse_embed(body, request.headers, state.settings)
    peer.watch()
    try:
        if peer.gone:
            raise ClientDisconnect
        embedded = await state.dispatcher.embed(asked.inputs, asked.timeout_ms, asked.lane)
    except asyncio.CancelledError:
        if peer.gone:
            raise ClientDisconnect from None
        if state.draining:  # its grace is over
            raise Unavailable("This gateway leaves: send it again.", retry_after_s=LEAVING_RETRY_S) from None
        raise
    finally:
        peer.unwatch()
    headers = {"x-request-id": request_id, **timing_headers(embedded)}
    return Response(embed_body(embedded, single=asked.single), 200, headers, JSON)


@asynccontextmanager
async def breathing_space() -> AsyncIterator[None]:
    """Leaves as much time to everybody else as the block has taken."""
    began = time.monotonic()
    try:
        yield
    finally:
        await asyncio.sleep(time.monotonic() - began)


@router.get("/health", summary="Health, for people and simple probes")
async def health() -> dict[str, str]:
    """Says that the gateway runs."""
    return {"status": "ok"}


@router.get("/livez", summary="Whether this process is alive", responses=HEALTH_RESPONSES)
async def livez(request: Request) -> Response:
    """The process alone: Redis may be away."""
    state: State = request.app.state.redbatch
    return _status(503, "stuck", []) if not state.alive() else _status(200, "ok", [])


@router.get("/readyz", summary="Whether this gateway can serve", responses=HEALTH_RESPONSES)
async def readyz(request: Request) -> Response:
    """Redis answers, a live worker is ready, and this gateway is not about to leave."""
    state: State = request.app.state.redbatch
    missing = state.missing()
    return _status(503, "unavailable", missing) if missing else _status(200, "ok", [])


def _status(code: int, status: str, missing: list[str]) -> Response:
    body = {"status": status} | ({"missing": missing} if missing else {})
    return Response(orjson.dumps(body), code, media_type=JSON)
