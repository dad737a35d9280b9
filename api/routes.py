"""The routes of the main port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response

from api.dialects import tei
from api.dialects.request import MODEL_HEADER
from api.jobs.routes import router as job_router
from api.dialects.native import Native, NativeBatch
from api.dialects.openai import OpenAI
from api.dialects.openapi import (
    EXCLUDE,
    HEALTH_ANSWERS,
    INFO,
    INFO_ANSWERS,
    JSON,
    MODEL,
    MODEL_ANSWERS,
    PAGES,
    UNHEALTHY_ANSWERS,
)
from api.dialects.predict import Predict
from api.http.handler import Dialect, error_response, request_id_of, respond
from shared.process.admin_server import wanted
from shared.errors import ModelNotFound, NoWorker, Unavailable

if TYPE_CHECKING:
    from api.state import State

NATIVE, OPENAI = Native(), OpenAI()
SERVED: dict[str, Dialect] = {
    dialect.route: dialect
    for dialect in (
        NATIVE,
        NativeBatch(),
        Predict(),
        OPENAI,
        OpenAI("/embeddings"),
        tei.Embed("/"),
        tei.Embed("/invocations"),
        tei.EmbedAll("/embed_all"),
        tei.Similarity("/similarity"),
        tei.Tokenize("/tokenize"),
        tei.Decode("/decode"),
    )
}
"""Those that go straight to api.http.handler.serve; the functions that are made for them here are for the OpenAPI page."""

PING = "Whether requests are served, as TEI tells it"

router = APIRouter()
router.include_router(job_router)


def dialect_of(path: str) -> Dialect:
    """Returns whose words an error under this path is told in."""
    if path in ("/info", "/ping"):
        return SERVED["/"]
    return SERVED.get(path) or (OPENAI if path.startswith("/v1/") else NATIVE)


def _describe(dialect: Dialect) -> None:
    async def asked(request: Request) -> Response:
        return await respond(request, request.app.state.redbatch, dialect)

    page = PAGES[dialect.route]
    router.post(dialect.route, summary=page.summary, responses=page.answers, openapi_extra=page.request)(asked)


for each in SERVED.values():
    _describe(each)


@router.get("/info", summary="What is served, as TEI tells it", responses=INFO_ANSWERS, openapi_extra=INFO)
async def info(request: Request) -> Response:
    """Describes the model and the bounds."""
    state: State = request.app.state.redbatch
    try:
        return Response(orjson.dumps(state.info(request.headers.get(MODEL_HEADER))), media_type=JSON)
    except (ModelNotFound, NoWorker) as error:
        return error_response(SERVED["/"], error, request_id_of(request.headers))


@router.get("/", summary=PING, responses=UNHEALTHY_ANSWERS, response_class=Response)
@router.get("/ping", summary=PING, responses=UNHEALTHY_ANSWERS, response_class=Response)
async def ping(request: Request) -> Response:
    """Nothing, with status 200, if they are."""
    state: State = request.app.state.redbatch
    missing = state.missing()
    if not missing:
        return Response()
    away = Unavailable(f"unhealthy: {', '.join(missing)} missing")
    return error_response(SERVED["/"], away, request_id_of(request.headers))


@router.get("/v1/models", summary="The models that live workers serve")
async def models(request: Request) -> dict[str, object]:
    """Lists them."""
    state: State = request.app.state.redbatch
    return {"object": "list", "data": state.models()}


@router.get(
    "/v1/models/{model:path}",  # noqa: FAST003 - see below
    summary="One of them",
    responses=MODEL_ANSWERS,
    openapi_extra={"parameters": [MODEL]},
)
async def model(request: Request) -> Response:  # an argument would have FastAPI document a shape of its own
    """Describes it."""
    state: State = request.app.state.redbatch
    name = request.path_params["model"]
    try:
        return Response(orjson.dumps(state.model(name)), media_type=JSON)
    except ModelNotFound as error:
        return error_response(OPENAI, error, request_id_of(request.headers))


@router.get("/health", summary="Health, for people and simple probes")
async def health() -> dict[str, str]:
    """Says that the gateway runs."""
    return {"status": "ok"}


@router.get("/livez", summary="Whether this process is alive", responses=HEALTH_ANSWERS)
async def livez(request: Request) -> Response:
    """The process alone: Redis may be away."""
    state: State = request.app.state.redbatch
    return _status(503, "stuck", []) if not state.alive() else _status(200, "ok", [])


@router.get(
    "/readyz",
    summary="Whether this gateway can serve",
    responses=HEALTH_ANSWERS,
    openapi_extra={"parameters": [EXCLUDE]},
)
async def readyz(request: Request) -> Response:
    """Redis answers, a live worker is ready, and this gateway is not about to leave; `exclude` leaves one out."""
    state: State = request.app.state.redbatch
    missing = wanted(state.missing(), request.url.query)
    return _status(503, "unavailable", missing) if missing else _status(200, "ok", [])


def _status(code: int, status: str, missing: list[str]) -> Response:
    body = {"status": status} | ({"missing": missing} if missing else {})
    return Response(orjson.dumps(body), code, media_type=JSON)
