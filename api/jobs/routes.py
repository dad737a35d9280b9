"""The routes of jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from api import metrics
from api.dialects.native import Native
from api.dialects.openapi import JSON
from api.http.body import BodyUnreadError
from api.http.handler import answer_errors, client_address, request_id_of
from api.http.protocol import QUEUE
from api.jobs import creation, results
from api.jobs.openapi import OPERATIONS
from api.jobs.representation import MAX_ERRORS, accepted, described, parts_of, public_id
from shared import jobs
from shared.errors import (
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    JobUnfinishedError,
    RedbatchError,
    RedisUnreachableError,
    UnavailableError,
)

if TYPE_CHECKING:
    from api.jobs.store import JobStore
    from api.state import State
    from shared.jobs import Job


NATIVE = Native()
MAX_WAIT_S = 60.0
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
        response = await answer_errors(route(request), request, request_id, lambda: NATIVE)
        response.headers.setdefault("x-request-id", request_id)
        metrics.answers_counter("/jobs", response.status_code).inc()
        return response

    return answer


@router.post("/jobs", status_code=202, summary=OPERATIONS["make"].summary, **OPERATIONS["make"].options)
@_answering
async def make(request: Request) -> Response:
    """Takes a job."""
    state: State = request.app.state.redbatch
    try:
        tenant = await state.authenticate(request.headers, client_address(request.scope), "jobs")
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    queue, job_id = await creation.take(request, state, tenant)
    public = public_id(queue.name, job_id)
    status = "queued"
    with suppress(RedisUnreachableError):  # it is taken, whether its status can be told or not
        job = await queue.job_store.find(job_id)
        if job is None:
            raise UnavailableError("Redis has lost the job as soon as it was made: send it again.")
        status = job.status
    return _json(accepted(public, status), 202)


@router.get(JOB, summary=OPERATIONS["show"].summary, **OPERATIONS["show"].options)
@_answering
async def show(request: Request) -> Response:
    """Tells how far a job is; with `wait`, as soon as it has ended."""
    wait_s = _number(request, "wait", 0, MAX_WAIT_S)
    job_store, job, public = await _found(request)
    state: State = request.app.state.redbatch
    ends = time.monotonic() + wait_s
    while not job.ended and not state.draining and (left := ends - time.monotonic()) > 0:
        await job_store.ended(job.job_id, min(left, LOOK_UP_S))
        job_store, job, public = await _found(request)
    return await _described(job_store, job, public)


@router.delete(JOB, summary=OPERATIONS["cancel"].summary, **OPERATIONS["cancel"].options)
@_answering
async def cancel(request: Request) -> Response:
    """Ends a job, if it has not ended."""
    job_store, job, public = await _found(request)
    await jobs.cancel(job_store.reading, job_store.keys, job.job_id)
    job_store, job, public = await _found(request)
    return await _described(job_store, job, public)


@router.get(RESULT, summary=OPERATIONS["result"].summary, **OPERATIONS["result"].options)
@_answering
async def result(request: Request) -> Response:
    """Gives the vectors of a job that has ended."""
    job_store, job, public = await _found(request)
    if job.status == "cancelled":
        raise JobGoneError("This job was cancelled, so it has no result.")
    if not job.ended:
        raise JobUnfinishedError(
            f"This job is {job.status}: ask again when it has ended.", retry_after_s=UNFINISHED_RETRY_S
        )
    offset = min(job.n, int(_number(request, "offset", 0, float(job.n))))
    if results.NPY in request.headers.get("accept", ""):
        stop = min(job.n, offset + int(_number(request, "limit", job.n, float(job.n))))
        dim = await results.dim_of(job_store, job)
        size = len(results.npy_head(stop - offset, dim)) + (stop - offset) * dim * 4
        headers = {"content-length": str(size), "x-failed-inputs": str(job.failed)}
        return StreamingResponse(results.npy(job_store, job, dim, offset, stop), 200, headers, results.NPY)
    limit = max(1, int(_number(request, "limit", results.MAX_IN_A_PAGE, results.MAX_IN_A_PAGE)))
    return Response(await results.page(job_store, job, public, offset, limit), media_type=JSON)


async def _found(request: Request) -> tuple[JobStore, Job, str]:
    """Returns the job that a request is about, if it is that of who asks. Raises JobNotFoundError."""
    state: State = request.app.state.redbatch
    tenant = await state.authenticate(request.headers, client_address(request.scope), "jobs")
    public = request.path_params["id"]
    queue_name, job_id = parts_of(public)
    queue = state.queues.of_name(queue_name)
    if queue is not None:
        request.scope["state"][QUEUE] = queue.name
    job = await queue.job_store.find(job_id) if queue is not None and _JOB_ID.fullmatch(job_id) else None
    if queue is None or job is None or job.owner != tenant.name:
        raise JobNotFoundError("There is no such job: it never was, or it was too long ago.")
    return queue.job_store, job, public


async def _described(job_store: JobStore, job: Job, public: str) -> Response:
    failures = await jobs.failures(job_store.reading, job_store.keys, job.job_id, MAX_ERRORS) if job.failed else []
    return _json(described(public, job, failures), 200)


def _number(request: Request, name: str, default: float, most: float) -> float:
    """Returns a whole number of the query, at most so large. Raises InvalidRequestError: it is none."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not _WHOLE.fullmatch(given):
        raise InvalidRequestError(f"{name}: send a whole number.", param=name)
    return min(most, float(given))


def _json(told: dict[str, object], status: int) -> Response:
    return Response(orjson.dumps(told), status, media_type=JSON)
