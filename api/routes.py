"""The routes of the main port, and the dialect of each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from starlette.routing import Route, compile_path

from api.console.action_routes import router as action_router
from api.console.routes import router as console_router
from api.dialects import tei
from api.dialects.base import BaseDialect
from api.dialects.cohere import CohereEmbed, CohereEmbedV1
from api.dialects.cohere_operations import COHERE_OPERATIONS
from api.dialects.headers import JSON
from api.dialects.native import Native, NativeBatch
from api.dialects.openai import OpenAI
from api.dialects.operation_headers import MODEL_PARAMETER
from api.dialects.operations import (
    EXCLUDE,
    INFO_ANSWERS,
    MODEL,
    MODEL_ANSWERS,
    MODELS_ANSWERS,
    OPERATIONS,
    TAG_OPENAI,
    TAG_OPERATIONS,
    TAG_TEI,
    UNHEALTHY_ANSWERS,
    unhealthy_answers,
)
from api.dialects.predict import Predict
from api.dialects.ranking_operations import RANKING_OPERATIONS
from api.dialects.report_models import Health, Info, Model, ModelList
from api.dialects.request import MODEL_HEADER
from api.dialects.rerank import CohereRerank, Rerank
from api.dialects.schemas import without_models
from api.dialects.vllm import Classify, Score
from api.handler import respond
from api.http.error_responses import error_response, refuse
from api.http.request_id import request_id_of
from api.jobs.routes import router as job_router
from api.pages.routes import STATIC_PATH
from api.pages.routes import router as page_router
from api.usage import router as usage_router
from shared.errors import ModelNotFoundError, NoWorkerError, RequestError, UnavailableError
from shared.process.admin_server import without_excluded

if TYPE_CHECKING:
    from api.state import State

NATIVE, OPENAI = Native(), OpenAI()
DIALECTS: dict[str, BaseDialect] = {
    dialect.route: dialect
    for dialect in (
        NATIVE,
        NativeBatch(),
        Predict(),
        Predict("/v1/predict"),
        OPENAI,
        OpenAI("/embeddings"),
        CohereEmbed(),
        CohereEmbedV1(),
        tei.Default("/"),
        tei.Default("/invocations"),
        Rerank("/rerank"),
        Rerank(),
        CohereRerank(),
        Score(),
        Score("/v1/score"),
        Classify(),
        Classify("/v1/classify"),
        tei.EmbedAll("/embed_all"),
        tei.EmbedSparse("/embed_sparse"),
        tei.Similarity("/similarity"),
        tei.Tokenize("/tokenize"),
        tei.Decode("/decode"),
    )
}
"""The routes that embed, by path.

Their requests go straight to handler.serve; the functions of `_add_route` are only for the OpenAPI description.
"""

UNLISTED_PATHS = ("/openapi.json", f"{STATIC_PATH}/{{path:path}}")
"""The paths beside those of routes."""

_UNLISTED = tuple(compile_path(path)[:2] for path in UNLISTED_PATHS)
"""The pattern and the template of each."""

_GENERATION = "text is not generated; POST /v1/embeddings returns the vectors of texts."
_BATCHES = "OpenAI's Batch API is not served; POST /jobs takes a file of texts in lines, to be run later."
_MEDIA = "only texts are embedded; POST /v1/embeddings takes them."
UNSERVED_BY_TEI = {
    "/vertex": "the envelope of Vertex AI is not served; POST /embed takes what is in `instances`, one at a time.",
    "/api-doc/openapi.json": "the OpenAPI description is at GET /openapi.json.",
}
UNSERVED = UNSERVED_BY_TEI | {
    "/chat/completions": _GENERATION,
    "/completions": _GENERATION,
    "/responses": _GENERATION,
    "/batches": _BATCHES,
    "/files": _BATCHES,
    "/pooling": "POST /embed returns a vector for each text, and POST /embed_all one for each token.",
    "/detokenize": "POST /decode returns the texts of token ids.",
    "/embeddings_image": _MEDIA,
    "/embeddings_audio": _MEDIA,
}
"""The routes of other servers that have no part here, and what comes nearest; also for /v1/files and /files/{id}.

Those that are not TEI's are of OpenAI, vLLM and Infinity, whose errors are OpenAI's.
"""

_VERSION = re.compile(r"^/v\d(?=/)")
MIN_RESEMBLANCE = 0.75
"""Ratio of SequenceMatcher from which a path may be a misspelt route: /api/embed is /embed, but /nothing not /ping."""

MAX_HINTED_CHARS = 64
"""Longer paths are not compared with those of routes, which takes the square of their length."""

PING = "Whether this gateway can serve, as TEI reports it"

router = APIRouter()
router.include_router(job_router)
router.include_router(page_router)
router.include_router(usage_router)
router.include_router(console_router)
router.include_router(action_router)


def dialect_of(path: str) -> BaseDialect:
    """Returns the dialect of errors under a path."""
    if path in ("/info", "/ping", *UNSERVED_BY_TEI):
        return DIALECTS["/"]
    return DIALECTS.get(path) or (OPENAI if path.startswith("/v1/") or _unserved_hint(path) else NATIVE)


def _routes() -> Iterator[Route]:
    routers = (router, job_router, page_router, usage_router, console_router, action_router)
    return (route for each in routers for route in each.routes if isinstance(route, Route))


def route_template(path: str) -> str:
    """Returns the template of the route of a path, such as /jobs/{id}; "" if there is none: see `unlisted_template`."""
    return next((route.path_format for route in _routes() if route.path_regex.match(path)), "")


def unlisted_template(path: str) -> str:
    """Returns the template of a path that is one of UNLISTED_PATHS, for which the framework names no route; else ""."""
    return next((template for pattern, template in _UNLISTED if pattern.match(path)), "")


def allowed_methods(path: str) -> list[str]:
    """Returns the methods of the routes of a path: the framework names only those of the first."""
    return sorted({method for route in _routes() if route.path_regex.match(path) for method in route.methods or ()})


def route_hint(path: str) -> str:
    """Returns what to call in place of an unknown path."""
    if hint := _unserved_hint(path):
        return hint
    paths = {route.path_format for route in _routes()}
    candidates = paths if len(path) <= MAX_HINTED_CHARS else ()
    if nearest := difflib.get_close_matches(path, candidates, n=1, cutoff=MIN_RESEMBLANCE):
        return f"did you mean {nearest[0]}? If not, see /docs for all routes."
    return f"there is no such route, only {', '.join(sorted(paths))}: see /docs."


def _unserved_hint(path: str) -> str:
    """Returns what there is in place of a route of another server, or of a path under it; "" for any other path."""
    if path in UNSERVED:
        return UNSERVED[path]
    parent = _VERSION.sub("", path) if len(path) <= MAX_HINTED_CHARS else ""
    while parent and parent not in UNSERVED:
        parent = parent.rpartition("/")[0]
    return UNSERVED.get(parent, "")


def begins_route(prefix: str) -> bool:
    """Whether a path of a route may begin with a prefix: a path with both would be ambiguous. False if it is empty."""
    paths = (route.path for route in _routes())
    return bool(prefix) and any(_may_begin(path, prefix) for path in (*paths, *UNLISTED_PATHS))


def _may_begin(path: str, prefix: str) -> bool:
    route, given = path.split("/"), prefix.split("/")
    for segment, given_segment in zip(route, given, strict=False):
        if segment.endswith(":path}"):
            return True
        if segment != given_segment and not segment.startswith("{"):
            return False
    return len(given) <= len(route)


def _add_route(dialect: BaseDialect) -> None:
    async def embed(request: Request) -> Response:
        return await respond(request, request.app.state.redbatch, dialect)

    operation = (OPERATIONS | COHERE_OPERATIONS | RANKING_OPERATIONS)[dialect.route]
    router.post(dialect.route, tags=[operation.tag], **operation.options)(embed)


for each in DIALECTS.values():
    _add_route(each)


@router.get(
    "/info",
    summary="The model and the limits, as TEI reports them",
    tags=[TAG_TEI],
    responses=without_models(INFO_ANSWERS),
    openapi_extra={"parameters": [MODEL_PARAMETER]},
    response_model=Info,
)
async def info(request: Request) -> Info | Response:
    """Returns the model and the limits."""
    state: State = request.app.state.redbatch
    try:
        return state.info(request.headers.get(MODEL_HEADER))
    except (NoWorkerError, RequestError) as error:
        return refuse(request, DIALECTS["/"], error, request_id_of(request.headers))


@router.get("/ping", summary=PING, tags=[TAG_TEI], responses=without_models(UNHEALTHY_ANSWERS), response_class=Response)
async def ping(request: Request) -> Response:
    """An empty body with status 200 if it can."""
    state: State = request.app.state.redbatch
    missing = state.missing()
    if not missing:
        return Response()
    error = UnavailableError(f"unhealthy: {', '.join(missing)} missing")
    return error_response(DIALECTS["/"], error, request_id_of(request.headers))


@router.get(
    "/v1/models",
    summary="The models that live workers serve",
    tags=[TAG_OPENAI],
    responses=without_models(MODELS_ANSWERS),
)
async def models(request: Request) -> ModelList:
    """Lists these models."""
    state: State = request.app.state.redbatch
    return ModelList(data=state.models())


@router.get(
    "/v1/models/{model:path}",  # noqa: FAST003 - see below
    summary="A model",
    tags=[TAG_OPENAI],
    responses=without_models(MODEL_ANSWERS),
    openapi_extra={"parameters": [MODEL]},
    response_model=Model,
)
async def model(request: Request) -> Model | Response:  # an argument would add a validation error to the description
    """Returns one model, by any of its names; the list of all for an empty one, as in /v1/models/."""
    state: State = request.app.state.redbatch
    name = request.path_params["model"]
    if not name:
        return Response((await models(request)).model_dump_json(), media_type=JSON)
    try:
        return state.model(name)
    except ModelNotFoundError as error:
        return refuse(request, OPENAI, error, request_id_of(request.headers))


@router.get(
    "/health",
    summary="Health, for people and simple probes",
    tags=[TAG_OPERATIONS],
    response_model_exclude_defaults=True,
)
async def health() -> Health:
    """Reports that the gateway runs."""
    return Health(status="ok")


@router.get(
    "/livez",
    summary="Whether this process is alive",
    tags=[TAG_OPERATIONS],
    responses=without_models(unhealthy_answers(Health(status="stuck"))),
    response_model_exclude_defaults=True,
)
async def livez(request: Request, response: Response) -> Health:
    """Checks only the process: Redis may be unreachable."""
    state: State = request.app.state.redbatch
    if state.alive():
        return Health(status="ok")
    response.status_code = 503
    return Health(status="stuck")


@router.get(
    "/readyz",
    summary="Whether this gateway can serve",
    tags=[TAG_OPERATIONS],
    responses=without_models(unhealthy_answers(Health(status="unavailable", missing=["worker"]))),
    openapi_extra={"parameters": [EXCLUDE]},
    response_model_exclude_defaults=True,
)
async def readyz(request: Request, response: Response) -> Health:
    """Redis answers, a live worker is ready, and this gateway does not drain; `exclude` ignores one of these."""
    state: State = request.app.state.redbatch
    missing = without_excluded(state.missing(), request.url.query)
    if not missing:
        return Health(status="ok")
    response.status_code = 503
    return Health(status="unavailable", missing=missing)
