"""Every error that crosses a process border, as one tree.

RedbatchError
├── RequestError                  the client's fault: a retry does not help
│   ├── InvalidRequestError       malformed JSON, missing or empty text, wrong type
│   │   ├── EmptyInputsError      there is nothing to embed
│   │   ├── UnsupportedOperationError the model does not offer the operation
│   │   └── NothingToRunError     no input of a job can run
│   ├── UnauthorizedError         missing or invalid API key
│   ├── ForbiddenError            the API key lacks the required scope
│   ├── NotFoundError             there is no such route
│   │   ├── ModelNotFoundError    no worker has announced this model
│   │   └── JobNotFoundError      there is no such job, or it belongs to another client
│   ├── JobUnfinishedError        the job has no result yet
│   ├── JobGoneError              the job was cancelled or deleted
│   ├── RevisionGoneError         no worker has the revision of the model
│   ├── KeyReusedError            the idempotency key was used for a different job
│   ├── MethodNotAllowedError     the route has other methods
│   ├── UnsupportedMediaTypeError the body is not JSON
│   ├── BodyTimeoutError          the body did not arrive in time
│   ├── HeadTooLargeError         the head of the request is over the limit, in bytes or fields
│   ├── UrlTooLongError           the URL is over the limit
│   └── TooLargeError             inputs or characters over the limit
│       └── BodyTooLargeError     the body is over the limit
├── OverloadedError               try again after `retry_after_s`
│   ├── QueueFullError
│   ├── RateLimitedError          the tenant has used its quota
│   ├── TooManyFailuresError      wrong API keys from this address
│   ├── TooManyJobsError          the tenant has its share of the room for jobs
│   ├── TooManyResultsError       the tenant has its share of the room for results of jobs
│   └── TooManyBodiesError        the gateway reads its maximum of large bodies or jobs
├── UnavailableError              the cluster cannot serve now
│   ├── RedisUnreachableError
│   ├── NoWorkerError
│   ├── ModelFailingError         the model fails on every batch of every worker
│   ├── JobsFullError             no capacity for more jobs
│   ├── TooManyConnectionsError   the gateway has its maximum of connections
│   ├── TooManyHeadsError         the gateway has its maximum of unfinished or unanswered heads
│   └── NotDurableError           Redis does not confirm that data will survive
├── DeadlineExceededError         the answer did not come in time
└── ModelError                    the fault lies with this input or the model
    ├── InputFailedError
    └── InternalError
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

OMITTED = "…"


class RedbatchError(Exception):
    """Base of all errors. `code` is for clients and the queue; `message` says what happened and what to do.

    `quoted` is the part of the message that comes from the client, or may repeat what it sent: logs leave it out.
    `key_id` is the API key that was refused, if there is such a key. `log_fields` say to logs where a worker's error
    comes from, without any text of a client.
    """

    code: ClassVar[str] = "internal"
    log_fields: Mapping[str, str] = MappingProxyType({})

    def __init__(self, message: str, *, retry_after_s: float | None = None, quoted: str = "", key_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.quoted = quoted
        self.key_id = key_id

    @property
    def log_message(self) -> str:
        """The message without what it quotes; "" if nothing else is left."""
        if not self.quoted:
            return self.message
        return "" if self.quoted == self.message else self.message.replace(self.quoted, OMITTED)


class RequestError(RedbatchError):
    """The client's fault: the same request gives the same answer again. `param` is the field at fault."""

    code = "invalid_request"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        quoted: str = "",
        key_id: str = "",
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, quoted=quoted, key_id=key_id)
        self.param = param


class InvalidRequestError(RequestError):
    """The body does not match the API; `too_long` has the tokens of an input that is too long, and the maximum."""

    too_long: tuple[int, int] | None = None


class EmptyInputsError(InvalidRequestError):
    """An input is empty, or there is none: a separate class because some clients distinguish it."""

    code = "empty_inputs"


class UnsupportedOperationError(InvalidRequestError):
    """The model of the queue does not offer the operation `op`, but those in `offered`."""

    code = "unsupported_operation"
    op = ""
    offered: tuple[str, ...] = ()

    @classmethod
    def of(cls, op: str, message: str, offered: tuple[str, ...] = ()) -> Self:
        """Returns the error for an operation."""
        error = cls(message, param="model")
        error.op, error.offered = op, offered
        return error


class NothingToRunError(InvalidRequestError):
    """No input of a job can run."""

    code = "nothing_to_run"


class UnauthorizedError(RequestError):
    """The API key is missing or invalid."""

    code = "invalid_api_key"


class ForbiddenError(RequestError):
    """The API key is valid, but lacks the required scope; or the page of another site may have sent the request."""

    code = "forbidden"


class NotFoundError(RequestError):
    """There is no route at this path, or nothing that the path names."""

    code = "not_found"


class MethodNotAllowedError(RequestError):
    """The route at this path has other methods."""

    code = "method_not_allowed"


class ModelNotFoundError(NotFoundError):
    """No worker serves this model."""

    code = "model_not_found"


class JobNotFoundError(NotFoundError):
    """There is no such job, or it belongs to another client: the error does not reveal which."""

    code = "job_not_found"


class JobUnfinishedError(RequestError):
    """The job has no result yet."""

    code = "job_unfinished"


class JobGoneError(RequestError):
    """The job was cancelled or deleted, so it has no result."""

    code = "job_gone"


class RevisionGoneError(RequestError):
    """No worker has the revision of the model that the request asks for."""

    code = "revision_gone"


class KeyReusedError(RequestError):
    """The idempotency key was used for a different job."""

    code = "idempotency_key_reused"


class UnsupportedMediaTypeError(RequestError):
    """The content type of the body is not JSON."""

    code = "unsupported_media_type"


class BodyTimeoutError(RequestError):
    """The body did not arrive in time."""

    code = "request_timeout"


class HeadTooLargeError(RequestError):
    """The head of the request has more bytes or more fields than its limits allow."""

    code = "head_too_large"


class UrlTooLongError(RequestError):
    """The URL exceeds its limit in bytes."""

    code = "url_too_long"


class TooLargeError(RequestError):
    """The number of inputs, or an input, exceeds its limit."""

    code = "too_large"


class BodyTooLargeError(TooLargeError):
    """The body exceeds its limit in bytes."""


class OverloadedError(RedbatchError):
    """Refused, to protect requests that were accepted already."""

    code = "overloaded"


class QueueFullError(OverloadedError):
    """The queue is at its bound."""

    code = "queue_full"


class RateLimitedError(OverloadedError):
    """The tenant has used its quota for now."""

    code = "rate_limited"


class TooManyFailuresError(OverloadedError):
    """Too many requests with wrong API keys came from one address."""

    code = "too_many_failures"


class TooManyJobsError(OverloadedError):
    """The tenant has its share of the jobs, or of their inputs or bytes, that may be open at a time."""

    code = "too_many_jobs"


class TooManyResultsError(OverloadedError):
    """The tenant has its share of the bytes of results that Redis keeps for jobs."""

    code = "too_many_results"


class TooManyBodiesError(OverloadedError):
    """This gateway has no room for another large body or upload until it has read the current ones."""

    code = "too_many_bodies"


class UnavailableError(RedbatchError):
    """A component that every request needs is missing."""

    code = "unavailable"


class RedisUnreachableError(UnavailableError):
    """Redis did not answer, or refused to serve with an error `reply`: for logs and operators, not for clients.

    `is_refused`: for want of another user, password, permission or database.
    """

    code = "redis_unreachable"
    reply = ""
    is_refused = False

    @property
    def log_message(self) -> str:
        """The message for logs, and the error reply of Redis."""
        return f"{super().log_message} Its reply: {self.reply}" if self.reply else super().log_message


class NoWorkerError(UnavailableError):
    """No worker has been alive for a while."""

    code = "no_worker"


class ModelFailingError(UnavailableError):
    """The model fails on every batch of every worker, so that none takes requests for a while."""

    code = "model_failing"


class JobsFullError(UnavailableError):
    """All jobs together have reached a bound on jobs, inputs or bytes, or Redis has no memory for more."""

    code = "jobs_full"


class TooManyConnectionsError(UnavailableError):
    """This gateway has its maximum of connections, all of them with a request."""

    code = "too_many_connections"


class TooManyHeadsError(UnavailableError):
    """This gateway has no room for this head beside those of other requests."""

    code = "too_many_heads"


class NotDurableError(UnavailableError):
    """Redis did not confirm in time that the data will survive, or cannot."""

    code = "not_durable"


class DeadlineExceededError(RedbatchError):
    """The deadline passed before there was an answer."""

    code = "deadline_exceeded"


class ModelError(RedbatchError):
    """The model returned no vector."""

    code = "model_error"


class InputFailedError(ModelError):
    """The model failed on one input of this request."""

    code = "input_failed"


class InternalError(ModelError):
    """An error that should not happen."""

    code = "internal"
