"""GET /console/state: the state of all queues, for keys of the scope `admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from api.dialects.console_operation import CONSOLE_OPERATION
from api.dialects.headers import JSON
from api.dialects.native import Native
from api.dialects.operations import TAG_OPERATIONS
from api.dialects.strict_body import unknown_parameter_error
from api.http.client_connection import client_address
from api.http.error_responses import answer_error
from api.http.request_id import request_id_of
from api.http.request_log import TENANT

if TYPE_CHECKING:
    from api.state import State

NATIVE = Native()
STATE_PATH = "/console/state"

router = APIRouter(default_response_class=Response, tags=[TAG_OPERATIONS])


@router.get(STATE_PATH, **CONSOLE_OPERATION.options)
async def console_state(request: Request) -> Response:
    """Returns what `redbatch queue --json` prints, for each queue that this gateway serves."""
    request_id = request_id_of(request.headers)
    try:
        state: State = request.app.state.redbatch
        tenant = await state.authenticate(request.headers, client_address(request.scope), "admin")
        request.scope["state"][TENANT] = tenant
        _check_query(request)
        headers = {"x-request-id": request_id, "cache-control": "no-store"}
        return Response(await state.queue_states.as_json(), 200, headers, JSON)
    except Exception as error:  # noqa: BLE001 - its message may quote the client
        return answer_error(error, request, NATIVE, request_id)


def _check_query(request: Request) -> None:
    """Raises InvalidRequestError: there is a parameter."""
    if name := next(iter(request.query_params), None):
        raise unknown_parameter_error(name, ())
