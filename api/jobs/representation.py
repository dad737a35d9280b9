"""Jobs and their failures as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from api.http.root_path import ROOT_PATH

if TYPE_CHECKING:
    from shared.jobs import Job
    from shared.messages import Failure

MAX_ERRORS = 100
"""Maximum number of failed inputs in the status of a job; its result holds all of them."""


def status_url(public_id: str) -> str:
    """Returns the path of a job."""
    return f"{ROOT_PATH.get()}/jobs/{public_id}"


def result_url(public_id: str, offset: int = 0, limit: int | None = None, **query: str) -> str:
    """Returns the path of a job's results, from `offset` on, with further parameters of its query."""
    parameters = {"offset": offset, **({} if limit is None else {"limit": limit}), **query}
    encoded = f"?{urlencode(parameters)}" if offset or len(parameters) > 1 else ""
    return f"{ROOT_PATH.get()}/jobs/{public_id}/result{encoded}"


def job_links(public_id: str, status: str) -> dict[str, object]:
    """Returns id, status and paths of a job."""
    return {"id": public_id, "status": status, "status_url": status_url(public_id), "result_url": result_url(public_id)}


def job_document(public_id: str, job: Job, failures: Sequence[Failure]) -> dict[str, object]:
    """Returns the status of a job: progress, times (seconds since the epoch), and up to MAX_ERRORS failed inputs."""
    kept_until_ms = None if job.finished_ms is None else job.finished_ms + job.ttl_ms
    return {
        **job_links(public_id, job.status),
        "op": job.op,
        "n": job.n,
        "done": job.done,
        "failed": job.failed,
        "truncated_inputs": job.truncated,
        "revisions": list(job.revisions),
        "created_at": _seconds(job.created_ms),
        "started_at": _seconds(job.started_ms),
        "finished_at": _seconds(job.finished_ms),
        "expires_at": _seconds(job.expires_ms),
        "kept_until": _seconds(kept_until_ms),
        "errors": [error for each in failures for error in errors_of(each)][:MAX_ERRORS],
    }


def errors_of(failure: Failure) -> list[dict[str, object]]:
    """Returns one error for each input of a failure."""
    indexes = range(failure.position, failure.position + failure.n)
    return [{"index": index, "code": failure.code, "message": failure.message} for index in indexes]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
