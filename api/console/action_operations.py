"""The OpenAPI descriptions of /console/dead and /console/jobs. Pure."""

from __future__ import annotations

from typing import Any

from api.console.action_models import (
    CancelledJobModel,
    DeadLetterList,
    DeadLetterText,
    DeletedLetter,
    JobList,
    RequeuedLetter,
)
from api.dialects.example_errors import KEY_ERRORS
from api.dialects.operations import BEARER, NATIVE, TAG_OPERATIONS, Operation, error_answers
from shared.errors import (
    ForbiddenError,
    InvalidRequestError,
    JobNotFoundError,
    ModelNotFoundError,
    NotFoundError,
    OverloadedError,
    RedbatchError,
    UnavailableError,
)

_ACTION = (
    "It needs an API key of the scope `admin` in the header Authorization, also where the gateway requires no keys."
)
_LACKS_SCOPE = ForbiddenError("This key lacks the scope admin: its scopes are embed.")
_NO_SUCH_QUEUE = ModelNotFoundError("This gateway does not serve this queue. Served: minilm.", param="queue")
_NOT_PERMITTED = UnavailableError("Redis does not permit this to the user of the gateway.")
_LIST_ERRORS = (
    InvalidRequestError("queue: send the name of a queue.", param="queue"),
    *KEY_ERRORS,
    _LACKS_SCOPE,
    _NO_SUCH_QUEUE,
)
_LETTER_ERRORS: tuple[RedbatchError, ...] = (
    *_LIST_ERRORS,
    NotFoundError("There is no such dead letter in this queue: it may have been requeued or deleted."),
    _NOT_PERMITTED,
)
_JOB_ERRORS = (
    InvalidRequestError("This job is done: to delete its results, send delete_results=true.", param="delete_results"),
    *KEY_ERRORS,
    _LACKS_SCOPE,
    JobNotFoundError("There is no such job: check its id. A job is deleted some time after its end (job_ttl_s)."),
    _NOT_PERMITTED,
)
_DESCRIPTIONS = {
    400: "No queue, or an unknown parameter",
    403: "No key for actions, or one that lacks the scope",
    404: "The gateway does not serve this queue, or there is no such dead letter",
    429: "Too many wrong keys came from this address; `Retry-After` says when to retry",
    503: "Redis is unreachable, or does not permit this to the gateway",
}
_REQUEUE_BUSY = OverloadedError(
    "8 dead letters are being requeued: wait until these are answered, then try again.", retry_after_s=1.0
)


def _parameter(name: str, place: str, kind: str, description: str, *, required: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "schema": {"type": kind},
        "description": description,
    }


_QUEUE = _parameter("queue", "query", "string", "The name of a queue that the gateway serves.")
_LETTER = _parameter("id", "path", "string", "The id of the dead letter, from GET /console/dead.")
_JOB = _parameter("id", "path", "string", "The id of the job, from GET /console/jobs.")
_DELETE_RESULTS = _parameter(
    "delete_results", "query", "boolean", "Delete the results of a job that has ended.", required=False
)


def _operation(
    summary: str,
    parameters: list[dict[str, Any]],
    answer: tuple[str, object],
    errors: tuple[RedbatchError, ...],
    **descriptions: str,
) -> Operation:
    texts = _DESCRIPTIONS | {int(status.removeprefix("on_")): text for status, text in descriptions.items()}
    description, model = answer
    ok: dict[int | str, dict[str, Any]] = {200: {"description": description, "model": model}}
    return Operation(summary, {"parameters": parameters}, ok | error_answers({NATIVE: errors}, texts), TAG_OPERATIONS)


def _action(operation: Operation) -> Operation:
    return operation._replace(request=operation.request | {"description": _ACTION, "security": [{BEARER: []}]})


CONSOLE_ACTIONS: dict[str, Operation] = {
    "list_dead": _operation(
        "The newest dead letters of a queue, without texts",
        [_QUEUE],
        ("The letters; also while Redis is unreachable, with the reason", DeadLetterList),
        _LIST_ERRORS,
        on_404="The gateway does not serve this queue",
    ),
    "show_text": _action(
        _operation("A dead letter with its texts", [_LETTER, _QUEUE], ("The letter", DeadLetterText), _LETTER_ERRORS)
    ),
    "requeue": _action(
        _operation(
            "Run a dead letter again, and wait for the outcome",
            [_LETTER, _QUEUE],
            ("The outcome; after 30 s, that there is no answer", RequeuedLetter),
            (*_LETTER_ERRORS, _REQUEUE_BUSY),
            on_429="Too many requeues at a time, or too many wrong keys from this address",
        )
    ),
    "purge": _action(
        _operation("Delete a dead letter", [_LETTER, _QUEUE], ("It is deleted", DeletedLetter), _LETTER_ERRORS)
    ),
    "list_jobs": _operation(
        "The newest jobs of a queue",
        [_QUEUE],
        ("The jobs; also while Redis is unreachable, with the reason", JobList),
        _LIST_ERRORS,
        on_404="The gateway does not serve this queue",
    ),
    "cancel_job": _action(
        _operation(
            "Cancel a job of any tenant",
            [_JOB, _DELETE_RESULTS],
            ("The job, and the outcome", CancelledJobModel),
            _JOB_ERRORS,
            on_400="An unknown parameter; or the job has results, and they are not to be deleted",
            on_404="There is no such job in a queue that the gateway serves",
        )
    ),
}
"""By the name of the route's function."""
