"""What the dialects of Text Embeddings Inference (TEI) have in common: errors, headers, and options of texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.base import BaseDialect
from api.dialects.headers import lane_of, resolve_timeout_ms
from api.dialects.input_types import PurposeFields
from api.dialects.parsing import invalid_body_error
from api.dialects.request import MODEL_HEADER, InferenceRequest
from api.dialects.truncation import Direction
from shared.codec import MAX_PROMPT_NAME
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    DeadlineExceededError,
    EmptyInputsError,
    ForbiddenError,
    MethodNotAllowedError,
    ModelError,
    NotFoundError,
    OverloadedError,
    RedbatchError,
    RequestError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
    UnsupportedOperationError,
)
from shared.messages import CLASSIFY, EMBED, EMBED_ALL, EMBED_SPARSE, SCORE, Options

if TYPE_CHECKING:
    from api.dialects.base import DeviceInfo
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

B = TypeVar("B", bound=BaseModel)
ERROR_TYPES: dict[type[RedbatchError], tuple[int, str]] = {
    EmptyInputsError: (400, "Empty"),
    UnsupportedOperationError: (424, "Backend"),
    UnauthorizedError: (401, "Validation"),
    ForbiddenError: (403, "Validation"),
    NotFoundError: (404, "Validation"),
    MethodNotAllowedError: (405, "Validation"),
    BodyTimeoutError: (408, "Validation"),
    BodyTooLargeError: (413, "Validation"),
    UnsupportedMediaTypeError: (415, "Validation"),
    RequestError: (422, "Validation"),
    ModelError: (424, "Backend"),
    OverloadedError: (429, "Overloaded"),
    UnavailableError: (503, "Unhealthy"),
    DeadlineExceededError: (504, "Backend"),
    RedbatchError: (500, "Backend"),
}
"""Status and `error_type` of each branch of the error tree. TEI itself has no timeouts."""

PROMPT = Field(
    default=None,
    max_length=MAX_PROMPT_NAME,
    description="One of the model's prompts, as query. Empty: no prompt, not even the model's default.",
)


_WRONG_MODELS = {
    EMBED: "Backend error: Model is not an embedding model",
    EMBED_ALL: "Backend error: Model is not an embedding model",
    EMBED_SPARSE: "Backend error: Model is not an embedding model with SPLADE pooling",
    SCORE: "Backend error: model is not a re-ranker model",
    CLASSIFY: "Backend error: Model is not a classifier model",
}
"""TEI's message for an operation that the model does not offer."""

_SPARSE_MODELS = {
    EMBED: "Backend error: `normalize` is not available for SPLADE models, nor /embed without it",
    EMBED_ALL: "Backend error: `embed_all` is not available for SPLADE models",
}
"""The same for a sparse encoder: TEI normalizes by default, and without that has vectors of the whole vocabulary."""


class TeiModel(BaseModel):
    """A body, or a part of one, whose unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class TruncationFields(TeiModel):
    """Whether and how to truncate a text that is too long, and the prompt of the text."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"truncate": True, "truncation_direction": "right"}]})

    truncate: bool = Field(default=True, description="Whether to truncate a text that is too long for the model.")
    truncation_direction: Direction = Field(default="right", description="Side from which to truncate.")
    prompt_name: str | None = PROMPT

    @property
    def truncate_side(self) -> Literal["right", "left", "no"]:
        """The side from which to truncate a text that is too long."""
        if not self.truncate:
            return "no"
        return "left" if self.truncation_direction.lower() == "left" else "right"


class EmbedFields(TruncationFields, PurposeFields):
    """The same, and what the texts are for: for the routes that embed."""


class TeiDialect(BaseDialect):
    """The headers and errors that TEI's routes have in common."""

    reports_model = True

    def headers(
        self, workers: DeviceInfo, request: InferenceRequest, result: InferenceResult, took_s: float
    ) -> dict[str, str]:
        """Returns TEI's measures: whole ms, characters and tokens of all inputs, and the kind of device."""
        took_ms = str(round(took_s * 1000))
        return {
            "x-compute-type": workers.compute_type(request.model),
            "x-compute-time": took_ms,
            "x-compute-characters": str(sum(len(each) for each in request.inputs if isinstance(each, str))),
            "x-compute-tokens": str(result.tokens),
            "x-total-time": took_ms,
            "x-tokenization-time": str(round(result.tokenize_ms)),
            "x-queue-time": str(round(result.queue_ms)),
            "x-inference-time": str(round(result.inference_ms)),
        }

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:  # noqa: ARG002 - in a header only
        """Returns status and body of an answer with an error."""
        status, error_type = next(ERROR_TYPES[each] for each in type(error).__mro__ if each in ERROR_TYPES)
        return status, orjson.dumps({"error": self.message_of(error), "error_type": error_type})

    def message_of(self, error: RedbatchError) -> str:
        """Returns the message of an error for a client of TEI."""
        if isinstance(error, UnsupportedOperationError) and error.op in _WRONG_MODELS:
            messages = _WRONG_MODELS | _SPARSE_MODELS if EMBED_SPARSE in error.offered else _WRONG_MODELS
            return f"{messages[error.op]}. {error.message}"
        return error.message


def validate_body(model: type[B], values: dict[str, Any]) -> B:
    """Returns the fields of a body. Raises InvalidRequestError: one is invalid."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_body_error(error, model) from None


def tei_request(
    inputs: Sequence[str | bytes],
    op: str,
    options: Options,
    headers: Mapping[str, str],
    limits: RequestLimits,
    input_type: str | None = None,
) -> InferenceRequest:
    """Returns a request whose time, lane and model its headers name. Raises InvalidRequestError: one is malformed."""
    timeout_ms = resolve_timeout_ms(None, headers, len(inputs), limits)
    lane = lane_of(None, headers)
    model = headers.get(MODEL_HEADER)
    return InferenceRequest(tuple(inputs), timeout_ms, lane, options, op, model=model, input_type=input_type)
