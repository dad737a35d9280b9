"""The routes of the main port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response

from api.native import Native
from api.openai import OpenAI
from api.openapi import (
    EMBED_REQUEST,
    EMBED_RESPONSES,
    EMBEDDINGS_REQUEST,
    EMBEDDINGS_RESPONSES,
    HEALTH_RESPONSES,
    JSON,
    MODEL,
    MODEL_RESPONSES,
)
from api.serving import Dialect, error_response, request_id_of, respond
from shared.errors import ModelNotFound

if TYPE_CHECKING:
    from api.state import State

NATIVE, OPENAI = Native(), OpenAI()
SERVED: dict[str, Dialect] = {dialect.route: dialect for dialect in (NATIVE, OPENAI)}
"""Those that go straight to api.serving.serve; their functions here are for the OpenAPI page."""

router = APIRouter()


def dialect_of(path: str) -> Dialect:
    """Returns whose words an error under this path is told in."""
    return OPENAI if path.startswith("/v1/") else NATIVE


@router.post("/embed", summary="Embed one text or many", responses=EMBED_RESPONSES, openapi_extra=EMBED_REQUEST)
async def embed(request: Request) -> Response:
    """Turns texts into vectors."""
    return await respond(request, NATIVE)


@router.post(
    "/v1/embeddings",
    summary="Embed as OpenAI's clients ask for it",
    responses=EMBEDDINGS_RESPONSES,
    openapi_extra=EMBEDDINGS_REQUEST,
)
async def embeddings(request: Request) -> Response:
    """Turns texts or token ids into vectors."""
    return await respond(request, OPENAI)


@router.get("/v1/models", summary="The models that live workers serve")
async def models(request: Request) -> dict[str, object]:
    """Lists them."""
    state: State = request.app.state.redbatch
    return {"object": "list", "data": state.models()}


@router.get(
    "/v1/models/{model:path}",  # noqa: FAST003 - see below
    summary="One of them",
    responses=MODEL_RESPONSES,
    openapi_extra={"parameters": [MODEL]},
)
async def model(request: Request) -> Response:  # an argument would have FastAPI document a shape of its own
    """Describes it."""
    state: State = request.app.state.redbatch
    name = request.path_params["model"]
    try:
        return Response(orjson.dumps(state.model(name)), media_type=JSON)
    except ModelNotFound as error:
        return error_response(OPENAI, error, request_id_of(request))


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
