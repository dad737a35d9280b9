"""GET /usage: what tenants have used, for keys of the scope `admin`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response

from api.admin_route import admin_route
from api.dialects.headers import JSON
from api.dialects.operations import TAG_OPERATIONS
from api.dialects.usage_operation import USAGE_OPERATION
from shared.errors import InvalidRequestError
from shared.usage import KEPT_HOURS, read_hours
from shared.usage_counts import DEFAULT_GROUPS, UsageHour, UsageReport, parse_groups
from shared.usage_hours import name_of_day, name_of_hour, parse_range

if TYPE_CHECKING:
    from api.state import State

PARAMETERS = ("from", "to", "group")
MAX_REPORT_ROWS = 10_000
"""Maximum rows of an answer, which is held in memory."""

router = APIRouter(default_response_class=Response, tags=[TAG_OPERATIONS])


@router.get("/usage", **USAGE_OPERATION.options)
@admin_route(*PARAMETERS)
async def usage(request: Request, state: State) -> Response:
    """Returns sums by group."""
    return Response(await _report(request, state), 200, media_type=JSON)


async def _report(request: Request, state: State) -> bytes:
    """Returns the body of the answer. Raises InvalidRequestError, or RedisUnreachableError."""
    query = request.query_params
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
    async for hour, rows in read_hours(state.usage_readers, hours):
        report.add(UsageHour(name_of_hour(hour), name_of_day(hour), rows))
        if len(report) > MAX_REPORT_ROWS:
            raise InvalidRequestError(
                f"The answer would have more than {MAX_REPORT_ROWS:,} rows: send a shorter time, or fewer groups."
            )
        await asyncio.sleep(0)  # the rows of an hour take some ms: in between, requests are answered
