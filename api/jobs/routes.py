"""The routes of jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING

import orjson
import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from api import metrics
from api.http.body import BodyUnread
from api.http.protocol import QUEUE
from api.jobs import results
from api.jobs import creation
from api.jobs.openapi import PAGES
from api.jobs.representation import MOST_ERRORS, accepted, described, parts_of, public_id
from api.http.lingering_close import LastWords
from api.dialects.native import Native
from api.dialects.openapi import JSON
from api.http.handler import CLIENT_CLOSED_REQUEST, address_of, counted_error, request_id_of
from api.tenants import by_header, by_key
from shared import jobs
from shared.errors import (
    InternalError,
    InvalidRequest,
    JobGone,
    JobNotFound,
    JobUnfinished,
    RedbatchError,
    RedisUnreachable,
    Unavailable,
)

if TYPE_CHECKING:
    from api.jobs.store import Desk
    from api.state import State
    from api.tenants import Tenant
    from shared.jobs import Job

log = structlog.get_logger()

NATIVE = Native()
MOST_WAIT_S = 60.0
LOOK_UP_S = 1.0
"""Who waits looks up so often: whether the gateway drains, and whether the key still opens."""

UNFINISHED_RETRY_S = 1.0
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_WHOLE = re.compile(r"[0-9]{1,10}")

Route = Callable[[Request], Awaitable[Response]]

JOB, RESULT = "/jobs/{id}", "/jobs/{id}/result"
"""What stands for `id` is read from the path by hand: an argument would have FastAPI document a shape of its own."""

router = APIRouter()


def _answering(route: Route) -> Route:
    """Has errors told as they are on /embed."""

    @wraps(route)
    async def answer(request: Request) -> Response:
        request_id = request_id_of(request.headers)
        try:
            response = await route(request)
        except BodyUnread as unread:
            response = counted_error(request, NATIVE, unread.error, request_id, LastWords)
        except RedbatchError as error:
            error.__traceback__ = None  # or the body would stay in memory for long
            response = counted_error(request, NATIVE, error, request_id)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception:
            log.exception("request failed", request_id=request_id)
            wrong = InternalError("Something went wrong; the logs say what.")
            response = counted_error(request, NATIVE, wrong, request_id)
        response.headers.setdefault("x-request-id", request_id)
        metrics.answered("/jobs", response.status_code).inc()
        return response

    return answer


@router.post("/jobs", status_code=202, summary=PAGES["make"].summary, **PAGES["make"].described)
@_answering
async def make(request: Request) -> Response:
    """Takes a job."""
    state: State = request.app.state.redbatch
    try:
        tenant = await _tenant(request, state)
    except RedbatchError as error:
        raise BodyUnread(error) from None
    queue, job_id = await creation.take(request, state, tenant)
    public = public_id(queue.name, job_id)
    status = "queued"
    with suppress(RedisUnreachable):  # it is taken, whether its status can be told or not
        job = await queue.desk.find(job_id)
        if job is None:
            raise Unavailable("Redis has lost the job as soon as it was made: send it again.")
        status = job.status
    return _json(accepted(public, status), 202)


@router.get(JOB, summary=PAGES["show"].summary, **PAGES["show"].described)
@_answering
async def show(request: Request) -> Response:
    """Tells how far a job is; with `wait`, as soon as it has ended."""
    wait_s = _number(request, "wait", 0, MOST_WAIT_S)
    desk, job, public = await _found(request)
    state: State = request.app.state.redbatch
    ends = time.monotonic() + wait_s
    while not job.ended and not state.draining and (left := ends - time.monotonic()) > 0:
        await desk.ended(job.job_id, min(left, LOOK_UP_S))
        desk, job, public = await _found(request)
    return await _described(desk, job, public)


@router.delete(JOB, summary=PAGES["cancel"].summary, **PAGES["cancel"].described)
@_answering
async def cancel(request: Request) -> Response:
    """Ends a job, if it has not ended."""
    desk, job, public = await _found(request)
    await jobs.cancel(desk.reading, desk.keys, job.job_id)
    desk, job, public = await _found(request)
    return await _described(desk, job, public)


@router.get(RESULT, summary=PAGES["result"].summary, **PAGES["result"].described)
@_answering
async def result(request: Request) -> Response:
    """Gives the vectors of a job that has ended."""
    desk, job, public = await _found(request)
    if job.status == "cancelled":
        raise JobGone("This job was cancelled, so it has no result.")
    if not job.ended:
        raise JobUnfinished(f"This job is {job.status}: ask again when it has ended.", retry_after_s=UNFINISHED_RETRY_S)
    offset = min(job.n, int(_number(request, "offset", 0, float(job.n))))
    if results.NPY in request.headers.get("accept", ""):
        stop = min(job.n, offset + int(_number(request, "limit", job.n, float(job.n))))
        dim = await results.dim_of(desk, job)
        size = len(results.npy_head(stop - offset, dim)) + (stop - offset) * dim * 4
        headers = {"content-length": str(size), "x-failed-inputs": str(job.failed)}
        return StreamingResponse(results.npy(desk, job, dim, offset, stop), 200, headers, results.NPY)
    limit = max(1, int(_number(request, "limit", results.MOST_IN_A_PAGE, results.MOST_IN_A_PAGE)))
    return Response(await results.page(desk, job, public, offset, limit), media_type=JSON)


async def _tenant(request: Request, state: State) -> Tenant:
    """Returns who asks. Raises as the gate does."""
    if state.gate is None:
        return by_header(request.headers, state.settings)
    key = await state.gate.admit(request.headers, address_of(request.scope), "jobs")
    return by_key(key, state.settings)


async def _found(request: Request) -> tuple[Desk, Job, str]:
    """Returns the job that a request is about, if it is that of who asks. Raises JobNotFound."""
    state: State = request.app.state.redbatch
    tenant = await _tenant(request, state)
    public = request.path_params["id"]
    queue_name, job_id = parts_of(public)
    queue = state.queues.of_name(queue_name)
    if queue is not None:
        request.scope["state"][QUEUE] = queue.name
    job = await queue.desk.find(job_id) if queue is not None and _JOB_ID.fullmatch(job_id) else None
    if queue is None or job is None or job.owner != tenant.name:
        raise JobNotFound("There is no such job: it never was, or it was too long ago.")
    return queue.desk, job, public


async def _described(desk: Desk, job: Job, public: str) -> Response:
    failures = await jobs.failures(desk.reading, desk.keys, job.job_id, MOST_ERRORS) if job.failed else []
    return _json(described(public, job, failures), 200)


def _number(request: Request, name: str, default: float, most: float) -> float:
    """Returns a whole number of the query, at most so large. Raises InvalidRequest: it is none."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not _WHOLE.fullmatch(given):
        raise InvalidRequest(f"{name}: send a whole number.", param=name)
    return min(most, float(given))


def _json(told: dict[str, object], status: int) -> Response:
    return Response(orjson.dumps(told), status, media_type=JSON)
