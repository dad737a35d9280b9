"""The errors of uploads and jobs for which Redis has no room. Pure."""

from __future__ import annotations

from shared.errors import JobsFullError, RedbatchError, TooManyJobsError, TooManyResultsError

FULL_RETRY_S = 10.0

_FREE_RESULTS = (
    "Delete jobs whose results you have (DELETE /jobs/{id}), or try again when results have expired, job_ttl_s after "
    "the end of their job."
)
_REFUSALS: dict[str, tuple[type[RedbatchError], str]] = {
    "full": (JobsFullError, "There is no capacity for more jobs: try again later."),
    "results_full": (JobsFullError, f"Results of jobs fill their part of Redis (max_result_ratio). {_FREE_RESULTS}"),
    "share": (
        TooManyJobsError,
        "This tenant has its share of the jobs, inputs or bytes that may be open: try again when some jobs have ended.",
    ),
    "results_share": (
        TooManyResultsError,
        f"Results of this tenant's jobs, with those still to come, fill its share of Redis. {_FREE_RESULTS}",
    ),
}


def refusal_error(status: str) -> RedbatchError:
    """Returns the error for an upload or a creation that has this status in Redis."""
    error_class, message = _REFUSALS[status]
    return error_class(message, retry_after_s=FULL_RETRY_S)
