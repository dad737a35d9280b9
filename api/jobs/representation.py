"""How a job looks over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared.errors import JobNotFound
from shared.messages import Failure, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.jobs import Job
    from shared.messages import Reply

MOST_ERRORS = 100
"""So many of the inputs that failed are named with the status; all of them, with the result."""


def public_id(queue: str, job_id: str) -> str:
    """Returns the name under which clients know a job: that of its queue, and 128 random bits."""
    return f"{queue}.{job_id}"


def parts_of(public: str) -> tuple[str, str]:
    """Returns the queue and the id of a job that a client names."""
    queue, _, job_id = public.rpartition(".")
    return queue, job_id


def status_url(public: str) -> str:
    """Returns where the job is."""
    return f"/jobs/{public}"


def result_url(public: str, offset: int = 0, limit: int | None = None) -> str:
    """Returns where its vectors are, from `offset` on."""
    asked = f"?offset={offset}" + (f"&limit={limit}" if limit is not None else "")
    return f"/jobs/{public}/result" + (asked if offset or limit is not None else "")


def accepted(public: str, status: str) -> dict[str, object]:
    """Returns what is told of a job that was taken."""
    return {"id": public, "status": status, "status_url": status_url(public), "result_url": result_url(public)}


def described(public: str, job: Job, failures: Sequence[Failure]) -> dict[str, object]:
    """Returns what is told of a job: how far it is, when what happened (seconds of the epoch), what failed."""
    kept = None if job.finished_ms is None else job.finished_ms + job.ttl_ms
    return {
        **accepted(public, job.status),
        "n": job.n,
        "done": job.done,
        "failed": job.failed,
        "revisions": list(job.revisions),
        "created_at": _seconds(job.created_ms),
        "started_at": _seconds(job.started_ms),
        "finished_at": _seconds(job.finished_ms),
        "expires_at": _seconds(job.expires_ms),
        "kept_until": _seconds(kept),
        "errors": [error for each in failures for error in errors_of(each)][:MOST_ERRORS],
    }


def errors_of(failure: Failure) -> list[dict[str, object]]:
    """Returns what is said of the inputs of a failure, one by one."""
    indexes = range(failure.position, failure.position + failure.n)
    return [{"index": index, "code": failure.code, "message": failure.message} for index in indexes]


class Rows:
    """The vectors of a job from `start` up to `stop`, and what has failed of them.

    Args:
        replies: in order, as far as there are any; the first and the last may reach beyond.
        start: index of the first input.
        stop: index after the last.
        expired: whether some may never have run.

    Raises:
        JobNotFound: some are missing, and should be there: they are not kept any more.
    """

    def __init__(self, replies: Sequence[Reply], start: int, stop: int, *, expired: bool) -> None:
        self.found: list[NDArray[np.float32] | None] = [None] * (stop - start)
        self.errors: list[dict[str, object]] = []
        self.dim = 0
        for reply in replies:
            if isinstance(reply, Failure):
                self.errors += [each for each in errors_of(reply) if start <= int(str(each["index"])) < stop]
            elif isinstance(reply, Vectors):
                self.dim = reply.dim
                vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
                for at in range(max(start, reply.position), min(stop, reply.position + reply.n)):
                    self.found[at - start] = vectors[at - reply.position]
        named = {each["index"] for each in self.errors}
        for index in range(start, stop):
            if self.found[index - start] is None and index not in named:
                if not expired:
                    raise JobNotFound("Results of this job are not kept any more.")
                late = "The job expired before this input had run."
                self.errors.append({"index": index, "code": "deadline_exceeded", "message": late})

    def array(self, dim: int) -> NDArray[np.float32]:
        """Returns the vectors as an array of shape (stop - start, dim): NaN for what failed."""
        nothing = np.full(dim, np.nan, dtype="<f4")
        if not self.found:
            return np.empty((0, dim), dtype="<f4")
        return np.stack([nothing if each is None else each for each in self.found])


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
