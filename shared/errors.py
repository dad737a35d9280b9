"""Every error that crosses a process border, as one tree.

RedbatchError
├── RequestError                  the client's fault: no retry helps
│   ├── InvalidRequestError       malformed JSON, missing or empty text, wrong type
│   │   └── EmptyInputsError      there is nothing to embed
│   ├── UnauthorizedError         no key, or none that opens
│   ├── ForbiddenError            the key is for something else
│   ├── NotFoundError             there is no such route
│   │   ├── ModelNotFoundError    no worker has announced this model
│   │   └── JobNotFoundError      there is no such job, or it is another's
│   ├── JobUnfinishedError        its result is not there yet
│   ├── JobGoneError              it was cancelled, or its result is not kept any more
│   ├── KeyReusedError            an idempotency key stands for something else already
│   ├── MethodNotAllowedError     the route has other methods
│   ├── UnsupportedMediaTypeError the body is not JSON
│   ├── BodyTimeoutError          the body did not arrive in time
│   └── TooLargeError             inputs or characters over the limit
│       └── BodyTooLargeError     the body is over the limit
├── OverloadedError               try again after `retry_after_s`
│   ├── QueueFullError
│   ├── RateLimitedError          the tenant has had what it may have
│   ├── TooManyFailuresError      wrong keys came from this address
│   └── TooManyBodiesError        a gateway reads as many as it may
├── UnavailableError              the cluster cannot serve now
│   ├── RedisUnreachableError
│   ├── NoWorkerError
│   ├── JobsFullError             no more jobs have room
│   └── NotDurableError           it cannot be promised that this is kept
├── DeadlineExceededError         the answer did not come in time
└── ModelError                    the fault lies with this input or the model
    ├── InputFailedError
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


class InvalidRequestError(RequestError):
    """The body is not what the API describes."""


class EmptyInputsError(InvalidRequestError):
    """An input is empty, or there is none: some clients are to tell this apart."""

    code = "empty_inputs"


class UnauthorizedError(RequestError):
    """There is no key, or none that opens."""

    code = "invalid_api_key"


class ForbiddenError(RequestError):
    """The key is good, for something else."""

    code = "forbidden"


class NotFoundError(RequestError):
    """There is nothing under this path."""

    code = "not_found"


class MethodNotAllowedError(RequestError):
    """There is something under this path, for other methods."""

    code = "method_not_allowed"


class ModelNotFoundError(NotFoundError):
    """Nobody serves this model."""

    code = "model_not_found"


class JobNotFoundError(NotFoundError):
    """There is no such job, or it is another's: which of both is not told."""

    code = "job_not_found"


class JobUnfinishedError(RequestError):
    """The job has no result yet."""

    code = "job_unfinished"


class JobGoneError(RequestError):
    """The job was cancelled, so it has no result."""

    code = "job_gone"


class KeyReusedError(RequestError):
    """An idempotency key stands for something else already."""

    code = "idempotency_key_reused"


class UnsupportedMediaTypeError(RequestError):
    """The body is announced as something other than JSON."""

    code = "unsupported_media_type"


class BodyTimeoutError(RequestError):
    """The body did not arrive in time."""

    code = "request_timeout"


class TooLargeError(RequestError):
    """The number of inputs, or an input, is over its limit."""

    code = "too_large"


class BodyTooLargeError(TooLargeError):
    """The body has more bytes than it may."""


class OverloadedError(RedbatchError):
    """Refused to protect what was accepted already."""

    code = "overloaded"


class QueueFullError(OverloadedError):
    """The queue is at its bound."""

    code = "queue_full"


class RateLimitedError(OverloadedError):
    """The tenant has used up what it may have for now."""

    code = "rate_limited"


class TooManyFailuresError(OverloadedError):
    """Too many wrong keys came from one address."""

    code = "too_many_failures"


class TooManyBodiesError(OverloadedError):
    """This gateway has no room for one more large body before it has read those that come in."""

    code = "too_many_bodies"


class UnavailableError(RedbatchError):
    """A part that every request needs is missing."""

    code = "unavailable"


class RedisUnreachableError(UnavailableError):
    """Redis did not answer."""

    code = "redis_unreachable"


class NoWorkerError(UnavailableError):
    """No worker has lived for a while."""

    code = "no_worker"


class JobsFullError(UnavailableError):
    """All jobs together ask for as much as may be."""

    code = "jobs_full"


class NotDurableError(UnavailableError):
    """Redis did not confirm in time that what it was given will survive, or cannot."""

    code = "not_durable"


class DeadlineExceededError(RedbatchError):
    """The deadline passed before there was an answer."""

    code = "deadline_exceeded"


class ModelError(RedbatchError):
    """The model gave no vector."""

    code = "model_error"


class InputFailedError(ModelError):
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
