"""The routes that the page /console reads, for keys of the scope `admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from api.admin_route import admin_route
from api.console.operations import (
    CONSOLE_OPERATION,
    HISTORY_OPERATION,
    LEASES_OPERATION,
    TENANTS_OPERATION,
)
from api.dialects.headers import JSON
from api.dialects.operations import TAG_OPERATIONS

if TYPE_CHECKING:
    from api.state import State

router = APIRouter(default_response_class=Response, tags=[TAG_OPERATIONS])


@router.get("/console/state", **CONSOLE_OPERATION.options)
@admin_route()
async def console_state(_request: Request, state: State) -> Response:
    """Returns what `redbatch queue --json` prints, for each queue that this gateway serves."""
    return Response(await state.queue_states.as_json(), 200, media_type=JSON)


@router.get("/console/history", **HISTORY_OPERATION.options)
@admin_route()
async def console_history(_request: Request, state: State) -> Response:
    """Returns what the queues did in the last minutes, as columns."""
    return Response(state.history.as_json(), 200, media_type=JSON)


@router.get("/console/tenants", **TENANTS_OPERATION.options)
@admin_route()
async def console_tenants(_request: Request, state: State) -> Response:
    """Returns what tenants have used in this hour and the last, and their limits."""
    return Response(await state.tenant_report.as_json(), 200, media_type=JSON)


@router.get("/console/leases", **LEASES_OPERATION.options)
@admin_route()
async def console_leases(_request: Request, state: State) -> Response:
    """Returns who holds the GPUs that workers share, and who waits for one."""
    return Response(await state.lease_report.as_json(), 200, media_type=JSON)


CONSOLE_READS = {each.path: each for each in router.routes if isinstance(each, APIRoute)}
"""What an open page asks for again and again, by path: `FastPathApp` calls these without the framework's router."""
