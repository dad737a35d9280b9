"""Jobs as dictionaries for JSON: for `redbatch jobs` and for the console of a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.jobs import Job
from shared.keys import LANES
from shared.messages import Failure
from shared.timestamps import format_timestamp


def job_as_dict(queue: str, job: Job, failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Returns a job for JSON. `queue` is the name of its shard, as in its id."""
    result: dict[str, Any] = {
        "id": f"{queue}.{job.job_id}",
        "status": job.status,
        "owner": job.owner,
        "op": job.op,
        "lane": LANES[job.lane],
        "n": job.n,
        "done": job.done,
        "failed": job.failed,
        "truncated_inputs": job.truncated,
        "revisions": list(job.revisions),
        "created": _format_optional(job.created_ms),
        "started": _format_optional(job.started_ms),
        "finished": _format_optional(job.finished_ms),
        "expires": _format_optional(job.expires_ms),
        "kept_until": _format_optional(None if job.finished_ms is None else job.finished_ms + job.ttl_ms),
    }
    if failures:
        result["errors"] = [
            {"index": each.position, "n": each.n, "code": each.code, "message": each.message} for each in failures
        ]
    return result


def _format_optional(ms: int | None) -> str | None:
    return None if ms is None else format_timestamp(ms)
