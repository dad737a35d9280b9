"""GET /usage: what tenants have used, for keys of the scope `admin`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response

from api.dialects.headers import JSON
from api.dialects.native import Native
from api.dialects.operations import TAG_OPERATIONS
from api.dialects.strict_body import unknown_parameter_error
from api.dialects.usage_operation import USAGE_OPERATION
from api.http.client_connection import client_address
from api.http.error_responses import answer_error
from api.http.request_id import request_id_of
from api.http.request_log import TENANT
from shared.errors import InvalidRequestError
from shared.usage import KEPT_HOURS, read_hours
from shared.usage_counts import DEFAULT_GROUPS, UsageHour, UsageReport, parse_groups
from shared.usage_hours import name_of_day, name_of_hour, parse_range

if TYPE_CHECKING:
    from api.state import State

NATIVE = Native()
PARAMETERS = ("from", "to", "group")
MAX_REPORT_ROWS = 10_000
"""Maximum rows of an answer, which is held in memory."""

router = APIRouter(default_response_class=Response, tags=[TAG_OPERATIONS])


@router.get("/usage", **USAGE_OPERATION.options)
async def usage(request: Request) -> Response:
    """Returns sums by group."""
    request_id = request_id_of(request.headers)
    try:
        state: State = request.app.state.redbatch
        tenant = await state.authenticate(request.headers, client_address(request.scope), "admin")
        request.scope["state"][TENANT] = tenant
        return Response(await _report(request, state), 200, {"x-request-id": request_id}, JSON)
    except Exception as error:  # noqa: BLE001 - its message may quote the client
        return answer_error(error, request, NATIVE, request_id)


async def _report(request: Request, state: State) -> bytes:
    """Returns the body of the answer. Raises InvalidRequestError, or RedisUnreachableError."""
    query = request.query_params
    for name in query:
        if name not in PARAMETERS:
            raise unknown_parameter_error(name, PARAMETERS)
    try:
        hours = parse_range(query.get("from"), query.get("to"), time.time(), KEPT_HOURS)
        report = UsageReport(parse_groups(query.get("group", DEFAULT_GROUPS)))
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None
    async with state.usage_lock:
        await _read(state, report, range(*hours))
        since, until = hours.names
        return orjson.dumps({"from": since, "to": until, "group": report.groups, "rows": report.as_dicts()})


async def _read(state: State, report: UsageReport, hours: range) -> None:
    """Adds hours to a report. Raises InvalidRequestError: it has too many rows; or RedisUnreachableError."""
    async for hour, rows in read_hours(state.usage_reader, hours):
        report.add(UsageHour(name_of_hour(hour), name_of_day(hour), rows))
        if len(report) > MAX_REPORT_ROWS:
            raise InvalidRequestError(
                f"The answer would have more than {MAX_REPORT_ROWS:,} rows: send a shorter time, or fewer groups."
            )
        await asyncio.sleep(0)  # the rows of an hour take some ms: in between, requests are answered
