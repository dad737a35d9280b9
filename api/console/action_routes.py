"""The routes /console/dead and /console/jobs: dead letters and jobs of a queue, and what an operator does with them.

The lists are for keys of the scope `admin` where keys are required, as GET /console/state is. All else are actions.
Without a key for these, a list does not show what names a job: on a gateway without keys, its id alone gives access.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from api.admin_route import admin_route
from api.console.action_operations import CONSOLE_ACTIONS
from api.console.actions import DELETE_RESULTS, NO_SUCH_JOB
from api.console.admin_action import ActionRecord, admin_action, may_act
from api.dialects.headers import JSON
from api.dialects.operations import TAG_OPERATIONS
from shared.dead_letter_view import letter_as_dict
from shared.errors import InvalidRequestError, JobNotFoundError, ModelNotFoundError
from shared.job_ids import format_shard_name, split_public_id
from shared.job_view import job_as_dict

if TYPE_CHECKING:
    from api.state import State

SHOWN_ID_CHARS = 6
"""What is shown of the random part of a job's id, without a key for actions."""

LETTER_PATH, REQUEUE_PATH, JOB_PATH = "/console/dead/{id}", "/console/dead/{id}/requeue", "/console/jobs/{id}"
"""`id` is read from the path by hand: as an argument, FastAPI would add a validation error to the description."""

ACTION_PREFIXES = ("/console/dead/", "/console/jobs/")
"""The paths below these are actions, which check the key themselves, so that refused ones are in the log, too."""

router = APIRouter(default_response_class=Response, tags=[TAG_OPERATIONS])


@router.get("/console/dead", **CONSOLE_ACTIONS["list_dead"].options)
@admin_route("queue")
async def list_dead(request: Request, state: State) -> Response:
    """Lists dead letters as `redbatch dead list --json` does."""
    queue, acts = _queue(request, state), await may_act(request, state)
    listed = await state.queue_lists.letters(queue)
    letters = listed["letters"] if acts else [_without(each, "request_id", "entry_id") for each in listed["letters"]]
    return _json({"queue": queue, "may_act": acts, **listed, "letters": letters})


@router.get(LETTER_PATH, **CONSOLE_ACTIONS["show_text"].options)
@admin_action("show text", "queue")
async def show_text(request: Request, state: State, record: ActionRecord) -> Response:
    """Shows a dead letter as `redbatch dead show --show-text --json` does."""
    letter = await state.queue_actions.find_letter(_queue(request, state), request.path_params["id"])
    record.outcome = "shown"
    return _json(letter_as_dict(letter, with_text=True))


@router.post(REQUEUE_PATH, **CONSOLE_ACTIONS["requeue"].options)
@admin_action("requeue", "queue")
async def requeue(request: Request, state: State, record: ActionRecord) -> Response:
    """Runs a dead letter again, as `redbatch dead requeue --json` does."""
    queue, letter_id = _queue(request, state), request.path_params["id"]
    try:
        result = await state.queue_actions.requeue(queue, letter_id)
    finally:
        state.queue_lists.forget(queue)
    record.outcome = result.code
    return _json({"id": letter_id, "answered": not result.problem, "error": result.problem})


@router.delete(LETTER_PATH, **CONSOLE_ACTIONS["purge"].options)
@admin_action("purge", "queue")
async def purge(request: Request, state: State, record: ActionRecord) -> Response:
    """Deletes a dead letter, as `redbatch dead purge` does."""
    queue, letter_id = _queue(request, state), request.path_params["id"]
    try:
        await state.queue_actions.purge(queue, letter_id)
    finally:
        state.queue_lists.forget(queue)
    record.outcome = "deleted"
    return _json({"id": letter_id, "deleted": True})


@router.get("/console/jobs", **CONSOLE_ACTIONS["list_jobs"].options)
@admin_route("queue")
async def list_jobs(request: Request, state: State) -> Response:
    """Lists jobs as `redbatch jobs list --json` does."""
    queue, acts = _queue(request, state), await may_act(request, state)
    listed = await state.queue_lists.jobs(queue)
    jobs = listed["jobs"] if acts else [_without_id(each) for each in listed["jobs"]]
    return _json({"queue": queue, "may_act": acts, **listed, "jobs": jobs})


@router.delete(JOB_PATH, **CONSOLE_ACTIONS["cancel_job"].options)
@admin_action("cancel job", DELETE_RESULTS)
async def cancel_job(request: Request, state: State, record: ActionRecord) -> Response:
    """Cancels a job of any tenant, as `redbatch jobs cancel --json` does."""
    deletes = request.query_params.get(DELETE_RESULTS, "false")
    if deletes not in {"true", "false"}:
        raise InvalidRequestError(f"{DELETE_RESULTS}: send true or false.", param=DELETE_RESULTS)
    if not record.queue or not record.target:
        raise JobNotFoundError(NO_SUCH_JOB)
    job_id, (queue, number, _) = record.target, split_public_id(record.target)
    try:
        job, result = await state.queue_actions.cancel(job_id, delete_results=deletes == "true")
    finally:
        state.queue_lists.forget(queue)
    record.outcome = ("results deleted" if job.status == "deleted" else job.status) if result.changed else "no change"
    job = await state.queue_actions.reread_job(job_id, job)
    document = job_as_dict(format_shard_name(queue, number), job)
    return _json({"id": job_id, "changed": result.changed, "outcome": result.outcome, "job": document})


def _queue(request: Request, state: State) -> str:
    """Returns the queue that a request names. Raises InvalidRequestError, or ModelNotFoundError: it is not served."""
    name = request.query_params.get("queue", "")
    if not name:
        raise InvalidRequestError("queue: send the name of a queue.", param="queue")
    if state.queues.of_name(name) is None:
        names = ", ".join(state.queues.names) or "none at the moment"
        raise ModelNotFoundError(f"This gateway does not serve this queue. Served: {names}.", param="queue")
    return name


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _without_id(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a job with the begin of its id only."""
    name, _, job_id = row["id"].rpartition(".")
    return row | {"id": f"{name}.{job_id[:SHOWN_ID_CHARS]}…"}


def _json(document: dict[str, Any]) -> Response:
    return Response(json.dumps(document, allow_nan=False), 200, media_type=JSON)
