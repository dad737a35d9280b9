"""The routes of the pages, and of `/` for programs."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from api.dialects.headers import JSON
from api.dialects.operations import TAG_OPERATIONS, UNHEALTHY_ANSWERS
from api.dialects.response_models import examples
from api.dialects.schemas import Answers, without_models
from api.dialects.tei import Embed
from api.http.error_responses import error_response
from api.http.request_id import request_id_of
from shared.errors import UnavailableError
from shared.process.version import __version__

if TYPE_CHECKING:
    from api.state import State

HTML = "text/html"
FOLDER = Path(__file__).parent
STATIC, SUFFIXES = FOLDER / "static", {".css", ".js", ".svg"}
CONSOLE, DOCS, HOME = (
    Template((FOLDER / name).read_text(encoding="utf-8")) for name in ("console.html", "docs.html", "home.html")
)

CONSOLE_PATH, DOCS_PATH, STATIC_PATH = "/console", "/docs", "/docs/static"
STATIC_FILES = StaticFiles(directory=STATIC, packages=[("fastapi_offline", "static")])
PAGE_PATHS = (
    CONSOLE_PATH,
    DOCS_PATH,
    "/openapi.json",
    *(
        f"{STATIC_PATH}/{name}"
        for name in (
            *("swagger-ui.css", "swagger-ui-bundle.js"),
            *(each.relative_to(STATIC).as_posix() for each in sorted(STATIC.rglob("*.*")) if each.suffix in SUFFIXES),
        )
    ),
)
"""What a browser loads for the pages. A browser sends no API key for these."""

HEADERS = {
    # Swagger UI sets styles on elements, and its style sheet contains images
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
CONSOLE_HEADERS = HEADERS | {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
}
"""The console shows names that workers report: no style or script inside it is admitted, nor markup from its script."""

TEI = Embed("/")


_LINKS = {
    "documentation": DOCS_PATH,
    "openapi": "/openapi.json",
    "models": "/v1/models",
    "console": CONSOLE_PATH,
    "health": "/readyz",
}


class Links(BaseModel):
    """Paths of this gateway."""

    model_config = examples(_LINKS)

    documentation: str
    openapi: str
    models: str
    console: str
    health: str


class Home(BaseModel):
    """What serves here, and where to go on."""

    model_config = examples({"name": "Redbatch", "version": __version__, "links": _LINKS})

    name: str
    version: str
    links: Links


_PAGE = {HTML: {"schema": {"type": "string"}}}
_UNHEALTHY = UNHEALTHY_ANSWERS[503]
HOME_ANSWERS: Answers = {
    200: {"description": "Links; a page if the client accepts text/html", "model": Home, "content": _PAGE},
    503: _UNHEALTHY | {"content": _UNHEALTHY["content"] | _PAGE},
}

router = APIRouter()


@router.get(CONSOLE_PATH, include_in_schema=False)
async def console(request: Request) -> Response:
    """Shows the state of all queues, which the page's script reads from /console/state."""
    return _page(CONSOLE, 200, CONSOLE_HEADERS, root_path=_root_path(request))


@router.get(DOCS_PATH, include_in_schema=False)
async def docs(request: Request) -> Response:
    """Shows the OpenAPI description with Swagger UI."""
    return _page(DOCS, 200, HEADERS, root_path=_root_path(request))


@router.get(
    "/",
    summary="What this is, and where to go on; 503 while it cannot serve",
    tags=[TAG_OPERATIONS],
    responses=without_models(HOME_ANSWERS),
    response_class=Response,
)
async def home(request: Request) -> Response:
    """Links for programs, a page for people; also TEI's route for health."""
    state: State = request.app.state.redbatch
    missing, root_path = state.missing(), _root_path(request)
    if HTML in request.headers.get("accept", ""):
        return _page(
            HOME,
            503 if missing else 200,
            HEADERS,
            root_path=root_path,
            version=__version__,
            origin=f"{request.url.scheme}://{request.headers.get('host', '')}",
            state="missing" if missing else "ready",
            state_text=f"Not ready: {', '.join(missing)} missing" if missing else "Ready",
        )
    if missing:
        error = UnavailableError(f"unhealthy: {', '.join(missing)} missing")
        response = error_response(TEI, error, request_id_of(request.headers))
        response.headers["vary"] = "accept"
        return response
    links = Links(**{name: f"{root_path}{path}" for name, path in _LINKS.items()})
    body = Home(name="Redbatch", version=__version__, links=links).model_dump()
    return Response(orjson.dumps(body), 200, {"vary": "accept"}, JSON)


def _page(template: Template, status: int, headers: dict[str, str], **values: str) -> Response:
    html = template.substitute({name: escape(value) for name, value in values.items()})
    return Response(html, status, headers | {"vary": "accept"}, f"{HTML}; charset=utf-8")


def _root_path(request: Request) -> str:
    root_path: str = request.scope.get("root_path", "")
    return root_path
