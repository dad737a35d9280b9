"""The errors that the OpenAPI description shows, with the messages that clients get. Pure."""

from __future__ import annotations

from api.dialects.parsing import too_many_inputs_error
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    DeadlineExceededError,
    EmptyInputsError,
    ForbiddenError,
    InputFailedError,
    InvalidRequestError,
    KeyReusedError,
    ModelNotFoundError,
    NoWorkerError,
    QueueFullError,
    RateLimitedError,
    RedbatchError,
    RedisUnreachableError,
    RevisionGoneError,
    TooLargeError,
    TooManyFailuresError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
    UnsupportedOperationError,
)
from shared.messages import SCORE, TooLong

NO_API_KEY = UnauthorizedError("Send an API key: Authorization: Bearer <key>, or x-api-key: <key>.")
NO_SUCH_MODEL = ModelNotFoundError("There is no such model here. Served: minilm.", param="model")
REVISION_GONE = RevisionGoneError("No worker has this revision of the model; there is 8aadba9b60fb7294.", param="model")
KEY_REUSED = KeyReusedError("This Idempotency-Key belongs to another job: send another key.")
RATE_LIMITED = RateLimitedError("The tenant's rate limit of 5000 tokens per second is exceeded: try again in 0.5 s.")
NOT_JSON = UnsupportedMediaTypeError("Send JSON, with the header Content-Type: application/json.")
UNHEALTHY = UnavailableError("unhealthy: worker missing")

_BODY_TOO_LARGE = (
    "The body is over the limit of {} bytes: send fewer inputs at once, or raise the setting {} of the gateway."
)
_TOO_MANY_INPUTS = too_many_inputs_error(3_000, 2_048)
_NO_INPUTS = "{}: send a text, a list of texts, a list of token ids, or a list of such lists; none of them empty."

_COMMON: tuple[RedbatchError, ...] = (
    NO_API_KEY,
    ForbiddenError("This key lacks the scope embed: its scopes are jobs."),
    NO_SUCH_MODEL,
    BodyTimeoutError("The body did not arrive within 30 s: send it without pauses."),
    REVISION_GONE,
    NOT_JSON,
    KEY_REUSED,
    QueueFullError("The queue is full: try again in 2 s."),
    RATE_LIMITED,
    InputFailedError("The model failed on this input (ValueError): the worker's log has the traceback."),
    NoWorkerError("No worker serves this queue yet: start one, then try again."),
    RedisUnreachableError("Redis has not answered for 2.0 s: try again later."),
    DeadlineExceededError(
        "No answer in time: the queue is long, or the model slow or hung. Allow more time, or add workers. "
        "If a worker's log says that the engine hangs, and an input may take that long, raise engine_hang_s."
    ),
)
"""Those of all routes that compute."""

NATIVE_ERRORS = (InvalidRequestError("texts is empty: send at least one text."), _TOO_MANY_INPUTS, *_COMMON)
PREDICT_ERRORS = (
    InvalidRequestError("inputs: send a list with at least one input.", param="inputs"),
    _TOO_MANY_INPUTS,
    *_COMMON,
    UnsupportedMediaTypeError(
        "Send JSON, with the header Content-Type: application/json, or application/octet-stream, or application/x-npy."
    ),
)
OPENAI_ERRORS = (
    InvalidRequestError(_NO_INPUTS.format("input"), param="input"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    *_COMMON,
)
COHERE_ERRORS = (
    InvalidRequestError("texts is empty: send at least one text.", param="texts"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    *_COMMON,
)
TEI_ERRORS = (
    EmptyInputsError("`inputs` cannot be empty", param="inputs"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(2_000_000, "max_body_bytes")),
    _TOO_MANY_INPUTS,
    *_COMMON,
)
TEI_DEFAULT_ERRORS = (
    TEI_ERRORS[0],
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    *TEI_ERRORS[2:],
)
_NO_RERANKER = UnsupportedOperationError.of(
    SCORE,
    "The model of queue my-classifier does not offer score. It offers: tokenize, decode, classify. Send the request to "
    "POST /classify.",
)


def _too_long_error() -> InvalidRequestError:
    error = InvalidRequestError("733 tokens, and the maximum is 512: shorten it, or allow truncate.")
    error.too_long = TooLong(733, 512)
    return error


_RANKING = (*(each for each in _COMMON if each is not KEY_REUSED), _NO_RERANKER)
RERANK_ERRORS = (
    InvalidRequestError("query: it is empty.", param="query"),
    EmptyInputsError("invalid request: list of documents must not be empty", param="documents"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    *_RANKING,
)
COHERE_RERANK_ERRORS = (
    InvalidRequestError("model: it is missing.", param="model"),
    EmptyInputsError("invalid request: list of documents must not be empty", param="documents"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    *_RANKING,
)
TEI_RERANK_ERRORS = (
    EmptyInputsError("`texts` cannot be empty", param="texts"),
    BodyTooLargeError(_BODY_TOO_LARGE.format(33_554_432, "max_v1_body_bytes")),
    TooLargeError("batch size 3000 > maximum allowed batch size 2048"),
    _too_long_error(),
    *_RANKING,
)
_TOO_MANY_FAILURES = TooManyFailuresError("Too many wrong keys came from your address: wait, then try again.")
KEY_ERRORS = (
    NO_API_KEY,
    _TOO_MANY_FAILURES,
    RedisUnreachableError("Redis has not answered for 2.0 s: try again later."),
)
INFO_ERRORS = (
    NO_API_KEY,
    _TOO_MANY_FAILURES,
    NO_SUCH_MODEL,
    InvalidRequestError("Name a model: this cluster serves minilm, squares-squares.", param="model"),
    NoWorkerError("No worker serves this model now."),
)
