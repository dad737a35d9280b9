"""Every error that crosses a process border, as one tree.

RedbatchError
├── RequestError          the client's fault: no retry helps
│   ├── InvalidRequest        malformed JSON, missing or empty text, wrong type
│   │   └── EmptyInputs           there is nothing to embed
│   ├── Unauthorized          no key, or none that opens
│   ├── Forbidden             the key is for something else
│   ├── NotFound              there is no such route
│   │   ├── ModelNotFound         no worker has announced this model
│   │   └── JobNotFound           there is no such job, or it is another's
│   ├── JobUnfinished         its result is not there yet
│   ├── JobGone               it was cancelled, or its result is not kept any more
│   ├── KeyReused             an idempotency key stands for something else already
│   ├── MethodNotAllowed      the route has other methods
│   ├── UnsupportedMediaType  the body is not JSON
│   ├── BodyTimeout           the body did not arrive in time
│   └── TooLarge              inputs or characters over the limit
│       └── BodyTooLarge          the body is over the limit
├── Overloaded            try again after `retry_after_s`
│   ├── QueueFull
│   ├── RateLimited           the tenant has had what it may have
│   ├── TooManyFailures       wrong keys came from this address
│   └── TooManyBodies         a gateway reads as many as it may
├── Unavailable           the cluster cannot serve now
│   ├── RedisUnreachable
│   ├── NoWorker
│   ├── JobsFull              no more jobs have room
│   └── NotDurable            it cannot be promised that this is kept
├── DeadlineExceeded      the answer did not come in time
└── ModelError            the fault lies with this input or the model
    ├── InputFailed
    └── InternalError
"""

from __future__ import annotations

from typing import ClassVar


class RedbatchError(Exception):
    """Base of all. `code` is what clients and the queue see; `message` says what happened and what to do."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class RequestError(RedbatchError):
    """The client's fault: sending the same again gives the same answer. `param` is the field that is to blame."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.param = param


class InvalidRequest(RequestError):
    """The body is not what the API describes."""


class EmptyInputs(InvalidRequest):
    """An input is empty, or there is none: some clients are to tell this apart."""

    code = "empty_inputs"


class Unauthorized(RequestError):
    """There is no key, or none that opens."""

    code = "invalid_api_key"


class Forbidden(RequestError):
    """The key is good, for something else."""

    code = "forbidden"


class NotFound(RequestError):
    """There is nothing under this path."""

    code = "not_found"


class MethodNotAllowed(RequestError):
    """There is something under this path, for other methods."""

    code = "method_not_allowed"


class ModelNotFound(NotFound):
    """Nobody serves this model."""

    code = "model_not_found"


class JobNotFound(NotFound):
    """There is no such job, or it is another's: which of both is not told."""

    code = "job_not_found"


class JobUnfinished(RequestError):
    """The job has no result yet."""

    code = "job_unfinished"


class JobGone(RequestError):
    """The job was cancelled, so it has no result."""

    code = "job_gone"


class KeyReused(RequestError):
    """An idempotency key stands for something else already."""

    code = "idempotency_key_reused"


class UnsupportedMediaType(RequestError):
    """The body is announced as something other than JSON."""

    code = "unsupported_media_type"


class BodyTimeout(RequestError):
    """The body did not arrive in time."""

    code = "request_timeout"


class TooLarge(RequestError):
    """The number of inputs, or an input, is over its limit."""

    code = "too_large"


class BodyTooLarge(TooLarge):
    """The body has more bytes than it may."""


class Overloaded(RedbatchError):
    """Refused to protect what was accepted already."""

    code = "overloaded"


class QueueFull(Overloaded):
    """The queue is at its bound."""

    code = "queue_full"


class RateLimited(Overloaded):
    """The tenant has used up what it may have for now."""

    code = "rate_limited"


class TooManyFailures(Overloaded):
    """Too many wrong keys came from one address."""

    code = "too_many_failures"


class TooManyBodies(Overloaded):
    """This gateway has no room for one more large body before it has read those that come in."""

    code = "too_many_bodies"


class Unavailable(RedbatchError):
    """A part that every request needs is missing."""

    code = "unavailable"


class RedisUnreachable(Unavailable):
    """Redis did not answer."""

    code = "redis_unreachable"


class NoWorker(Unavailable):
    """No worker has lived for a while."""

    code = "no_worker"


class JobsFull(Unavailable):
    """All jobs together ask for as much as may be."""

    code = "jobs_full"


class NotDurable(Unavailable):
    """Redis did not confirm in time that what it was given will survive, or cannot."""

    code = "not_durable"


class DeadlineExceeded(RedbatchError):
    """The deadline passed before there was an answer."""

    code = "deadline_exceeded"


class ModelError(RedbatchError):
    """The model gave no vector."""

    code = "model_error"


class InputFailed(ModelError):
    """The model failed on one input of this request."""

    code = "input_failed"


class InternalError(ModelError):
    """Something that should not happen did."""

    code = "internal"


def error_tree(root: type[RedbatchError] = RedbatchError) -> list[type[RedbatchError]]:
    """Returns every class of the tree, the root first."""
    return [root, *(cls for child in root.__subclasses__() for cls in error_tree(child))]


def error_from_code(code: str, message: str) -> RedbatchError:
    """Returns the error that a reply names; an unknown code becomes InternalError."""
    by_code = {cls.code: cls for cls in error_tree()}  # of a base and its child with one code, the child
    return by_code.get(code, InternalError)(message)
