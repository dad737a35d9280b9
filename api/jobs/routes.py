"""The HTTP routes of jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter, Request, Response

from api import metrics
from api.dialects.headers import JSON
from api.dialects.native import Native
from api.dialects.operations import TAG_JOBS
from api.dialects.request import TRUNCATED_HEADER, Labels
from api.dialects.strict_body import unknown_parameter_error
from api.dialects.vectors import npy_header
from api.http.body import BodyUnreadError
from api.http.client_connection import CLIENT, ClientConnection, client_address
from api.http.error_responses import answer_error
from api.http.protocol import QUEUE
from api.http.request_id import request_id_of
from api.http.request_log import TENANT
from api.http.share_holder import share_holder_of
from api.http.streamed_answer import streamed_answer
from api.jobs import creation, results
from api.jobs.acceptance import accepted_response
from api.jobs.operations import NO_SUCH_JOB, OPERATIONS
from api.jobs.representation import MAX_ERRORS, job_document
from api.jobs.result_form import RAW_SCORES, form_of
from api.usage_recording import count_answer
from shared import job_results, jobs
from shared.errors import (
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    JobUnfinishedError,
    RedbatchError,
)
from shared.job_ids import split_public_id
from shared.messages import CLASSIFY, VECTOR_OPS

if TYPE_CHECKING:
    from api.jobs.result_form import ResultForm
    from api.jobs.store import JobStore
    from api.state import State
    from shared.jobs import Job
    from shared.messages import Failure


NATIVE = Native()
MAX_WAIT_S = 60
RECHECK_INTERVAL_S = 1.0
"""Interval at which a waiting client's API key is checked again, and whether the gateway drains."""

UNFINISHED_RETRY_S = 1.0
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_WHOLE = re.compile(r"[0-9]{1,10}")

Route = Callable[[Request], Awaitable[Response]]

JOB_PATH, RESULT_PATH, RESULTS_PATH = "/jobs/{id}", "/jobs/{id}/result", "/jobs/{id}/results"
"""`id` is read from the path by hand: as an argument, FastAPI would add a validation error to the description."""

router = APIRouter(default_response_class=Response, tags=[TAG_JOBS])


def _with_error_answers(route: Route) -> Route:
    """Answers errors in the native format, as on /embed, and counts the answer."""

    @wraps(route)
    async def answer(request: Request) -> Response:
        request_id = request_id_of(request.headers)
        try:
            response = await route(request)
        except Exception as error:  # noqa: BLE001 - its message may quote the client
            response = answer_error(error, request, NATIVE, request_id)
        response.headers.setdefault("x-request-id", request_id)
        metrics.answers_counter("/jobs", response.status_code).inc()
        if request.method == "POST":  # others only ask for what is counted
            count_answer(request.app.state.redbatch.usage, request.scope["state"], response.status_code)
        return response

    return answer


@router.post("/jobs", status_code=202, **OPERATIONS["make"].options)
@_with_error_answers
async def make(request: Request) -> Response:
    """Accepts a job."""
    state: State = request.app.state.redbatch
    try:
        tenant = await state.authenticate(request.headers, client_address(request.scope), "jobs")
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    request.scope["state"][TENANT] = tenant
    shard, job_id = await creation.create_job(request, state, tenant)
    return await accepted_response(shard, job_id, request_id_of(request.headers))


@router.get(JOB_PATH, **OPERATIONS["show"].options)
@_with_error_answers
async def show(request: Request) -> Response:
    """Returns the status of a job; with `wait`, as soon as the job has ended."""
    _check_query(request, "wait")
    wait_s = _query_number(request, "wait", 0, MAX_WAIT_S)
    job_store, job, public_id = await _find_job(request)
    state: State = request.app.state.redbatch
    client: ClientConnection = request.scope["state"][CLIENT]
    deadline = time.monotonic() + wait_s
    while not job.ended and not state.draining and (left_s := deadline - time.monotonic()) > 0:
        client.check()
        await job_store.wait_until_ended(job.job_id, min(left_s, RECHECK_INTERVAL_S))
        job_store, job, public_id = await _find_job(request)
    return await _job_response(job_store, job, public_id)


@router.delete(JOB_PATH, **OPERATIONS["cancel"].options)
@_with_error_answers
async def cancel(request: Request) -> Response:
    """Cancels a job, and deletes its results, also if it has ended."""
    _check_query(request)
    job_store, job, public_id = await _find_job(request)
    await jobs.cancel(job_store.connection, job_store.keys, job.job_id)
    job_store, job, public_id = await _find_job(request)
    return await _job_response(job_store, job, public_id)


@router.get(RESULT_PATH, **OPERATIONS["result"].options)
@router.get(RESULTS_PATH, **OPERATIONS["result"].options)
@_with_error_answers
async def result(request: Request) -> Response:
    """Returns the results of a job that has ended."""
    _check_query(request, "offset", "limit", RAW_SCORES)
    raw_scores = _query_flag(request, RAW_SCORES)
    job_store, job, public_id = await _find_job(request)
    if job.status in jobs.STATUSES_WITHOUT_RESULTS:
        raise JobGoneError(f"This job was {job.status}, so it has no result.")
    if not job.ended:
        raise JobUnfinishedError(
            f"This job is {job.status}: try again when it has ended.", retry_after_s=UNFINISHED_RETRY_S
        )
    state: State = request.app.state.redbatch
    client: ClientConnection = request.scope["state"][CLIENT]
    form = await _result_form(state, job, public_id, raw=raw_scores)
    read = results.JobResults(job_store, job, form, client, state.result_lock, share_holder_of(request.scope))
    offset = _query_number(request, "offset", 0)
    if results.NPY in request.headers.get("accept", ""):
        if job.op not in VECTOR_OPS:
            raise InvalidRequestError(f"The results of {job.op} are no .npy file: send Accept: application/json.")
        bounds = range(offset, min(job.n, offset + _query_number(request, "limit", job.n, minimum=1)))
        dim = await read.dim()
        size = len(npy_header(len(bounds), dim)) + len(bounds) * dim * 4
        headers = {"content-length": str(size), "x-failed-inputs": str(job.n - job.done)}  # or expired before they ran
        if job.truncated:
            headers[TRUNCATED_HEADER] = str(job.truncated)
        parts = read.iter_npy(dim, bounds)
        return await streamed_answer(request.scope, parts, headers, results.NPY)
    limit = _query_number(request, "limit", results.MAX_PAGE_INPUTS, results.MAX_PAGE_INPUTS, minimum=1)
    return Response(await read.json_page(public_id, offset, limit), media_type=JSON)


async def _result_form(state: State, job: Job, public_id: str, *, raw: bool | None) -> ResultForm:
    """Returns the form of a job's results; raises as `form_of` does."""
    queue = state.queues.of_name(split_public_id(public_id)[0]) if job.op == CLASSIFY else None
    return form_of(job.op, Labels() if queue is None else await queue.find_labels(), raw=raw)


async def _find_job(request: Request) -> tuple[JobStore, Job, str]:
    """Returns the job that a request names, with its store and public id.

    Raises:
        JobNotFoundError: it does not exist, or belongs to another tenant.
    """
    state: State = request.app.state.redbatch
    tenant = await state.authenticate(request.headers, client_address(request.scope), "jobs")
    request.scope["state"][TENANT] = tenant
    public_id = request.path_params["id"]
    queue_name, number, job_id = split_public_id(public_id)
    queue = state.queues.of_name(queue_name)
    if queue is not None:
        request.scope["state"][QUEUE] = queue.name
    if queue is None or not _JOB_ID.fullmatch(job_id):
        raise JobNotFoundError(NO_SUCH_JOB)
    if number >= len(queue.shards):
        raise JobNotFoundError(f"This job is on shard {number} of the queue, which this gateway does not have.")
    job_store = queue.shards[number].job_store
    job = await job_store.find(job_id)
    if job is None or job.owner != tenant.name:
        raise JobNotFoundError(NO_SUCH_JOB)
    return job_store, job, public_id


async def _job_response(job_store: JobStore, job: Job, public_id: str) -> Response:
    failures: list[Failure] = []
    if job.failed:
        failures = await job_results.failures(job_store.connection, job_store.keys, job.job_id, MAX_ERRORS)
    return _json(job_document(public_id, job, failures), 200)


def _check_query(request: Request, *known: str) -> None:
    """Raises InvalidRequestError: the query has another parameter than these."""
    for name in request.query_params:
        if name not in known:
            raise unknown_parameter_error(name, known)


def _query_number(request: Request, name: str, default: int, maximum: int | None = None, *, minimum: int = 0) -> int:
    """Returns a whole number of the query. Raises InvalidRequestError: it is not one, or out of its bounds."""
    value = request.query_params.get(name)
    if value is None:
        return default
    if not _WHOLE.fullmatch(value) or int(value) < minimum or (maximum is not None and int(value) > maximum):
        bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise InvalidRequestError(f"{name}: send a whole number {bounds}.", param=name)
    return int(value)


def _query_flag(request: Request, name: str) -> bool | None:
    """Returns whether a parameter of the query is true; None without it. Raises InvalidRequestError: it is neither."""
    value = request.query_params.get(name)
    if value not in (None, "true", "false"):
        raise InvalidRequestError(f"{name}: send true or false.", param=name)
    return None if value is None else value == "true"


def _json(document: dict[str, object], status: int) -> Response:
    return Response(orjson.dumps(document), status, media_type=JSON)
