"""The dialect of Hugging Face's Text Embeddings Inference (TEI), version 1.9: its routes for embedding models. Pure.

The contract is what TEI's code does, where its OpenAPI page differs: a body that is valid JSON with invalid fields is a
422, an error is `{"error", "error_type"}` with the type in PascalCase, and even one text gives a list of vectors.
`inputs` may be a text, the token ids of one, or a list that mixes both. Headers set time, lane and request id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from api.dialects.base import BaseDialect
from api.dialects.headers import parse_lane, resolve_timeout_ms
from api.dialects.parsing import IDS, INPUTS, check_inputs, invalid_body_error, parse_fields, parse_inputs
from api.dialects.request import MODEL_HEADER, PRIORITY_HEADER, InferenceRequest
from api.dialects.vectors import dump_json, rows_of
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    DeadlineExceededError,
    EmptyInputsError,
    ForbiddenError,
    InvalidRequestError,
    MethodNotAllowedError,
    ModelError,
    NotFoundError,
    OverloadedError,
    RedbatchError,
    RequestError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
)
from shared.messages import DECODE, EMBED, EMBED_ALL, TOKENIZE, Options, Values, Vectors

if TYPE_CHECKING:
    from api.dialects.base import DeviceInfo
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

B = TypeVar("B", bound=BaseModel)
ERROR_TYPES: dict[type[RedbatchError], tuple[int, str]] = {
    EmptyInputsError: (400, "Empty"),
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

_TEXTS = {
    "description": "A text, or a list of texts.",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ],
}
_IDS = {
    "description": "Token ids, or a list of lists of token ids.",
    "anyOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}],
}
_PROMPT = Field(
    default=None,
    max_length=MAX_PROMPT_NAME,
    description="One of the model's prompts, as query. Empty: no prompt, not even the model's default.",
)


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class TruncationFields(_Body):
    """Whether and how to truncate a text that is too long, and the prompt of the text."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"truncate": True, "truncation_direction": "right"}]})

    truncate: bool = Field(default=True, description="Whether to truncate a text that is too long for the model.")
    truncation_direction: Literal["Left", "left", "Right", "right"] = Field(
        default="right", description="Side from which to truncate."
    )
    prompt_name: str | None = _PROMPT

    @property
    def truncate_side(self) -> Literal["right", "left", "no"]:
        """The side from which to truncate a text that is too long."""
        if not self.truncate:
            return "no"
        return "left" if self.truncation_direction.lower() == "left" else "right"


class EmbedAllBody(TruncationFields):
    """Body of POST /embed_all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["one", "two"]}]})

    inputs: Annotated[Any, WithJsonSchema(INPUTS)] = Field(default=None)  # parsed by parse_inputs


class TeiBody(EmbedAllBody):
    """Body of POST /embed in TEI's dialect."""

    normalize: bool = Field(default=True, description="Whether to normalize vectors to length 1.")
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DIM,
        description="Truncate vectors to this many dimensions, before they are normalized.",
    )


_SIMILARITY_INPUTS: Any = {"source_sentence": "a cat", "sentences": ["a dog", "a car"]}


class SimilarityInputs(_Body):
    """The texts that POST /similarity compares."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SIMILARITY_INPUTS]})

    source_sentence: str = Field(json_schema_extra={"minLength": 1})
    sentences: list[str] = Field(fail_fast=True, json_schema_extra={"minItems": 1})


class SimilarityBody(_Body):
    """Body of POST /similarity."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": _SIMILARITY_INPUTS}]})

    inputs: SimilarityInputs
    parameters: TruncationFields = Field(default_factory=TruncationFields)


class TokenizeBody(_Body):
    """Body of POST /tokenize."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["Hello, world"]}]})

    inputs: Annotated[Any, WithJsonSchema(_TEXTS)] = Field(default=None)  # parsed by parse_inputs
    add_special_tokens: bool = Field(
        default=True, description="Whether to add the special tokens that the model reads."
    )
    prompt_name: str | None = _PROMPT


class DecodeBody(_Body):
    """Body of POST /decode."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [[7592, 2088]]}]})

    ids: Annotated[Any, WithJsonSchema(_IDS)] = Field(default=None)  # parsed by parse_inputs
    skip_special_tokens: bool = Field(default=True, description="Whether to leave special tokens out of the text.")


def is_tei(body: bytes) -> bool:
    """Whether a body of POST /embed is in TEI's dialect: an object with `inputs`.

    Raises:
        InvalidRequestError: the body also has `text` or `texts`, of Redbatch's own dialect.
    """
    if b'"inputs"' not in body:
        return False
    try:
        fields = parse_fields(body)
    except RequestError:
        return False
    if "inputs" in fields and ("text" in fields or "texts" in fields):
        raise InvalidRequestError("Send inputs, text or texts: one of them.")
    return "inputs" in fields


class _TeiDialect(BaseDialect):
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
        return status, orjson.dumps({"error": error.message, "error_type": error_type})


class Embed(_TeiDialect):
    """The dialect of POST /embed, of POST / and of POST /invocations."""

    body_model = TeiBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        fields = _validate(TeiBody, values)
        options = Options(fields.prompt_name, fields.normalize, fields.dimensions, fields.truncate_side)
        return _tei_request(inputs, EMBED, options, headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with vectors."""
        return dump_json(list(rows_of(result)))


class EmbedAll(_TeiDialect):
    """The dialect of POST /embed_all: a vector for each token."""

    body_model = EmbedAllBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        fields = _validate(EmbedAllBody, values)
        return _tei_request(
            inputs, EMBED_ALL, Options(fields.prompt_name, truncate=fields.truncate_side), headers, limits
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the vectors of each input's tokens."""
        answer = []
        for part in result.parts:
            if isinstance(part, Vectors):
                vectors = np.frombuffer(part.data, dtype="<f4").reshape(-1, part.dim)
                answer += np.split(vectors, np.cumsum(part.counts)[:-1])
        return dump_json(answer)


class Similarity(_TeiDialect):
    """The dialect of POST /similarity: cosines of vectors."""

    body_model = SimilarityBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        parameters = values.get("parameters")
        if isinstance(parameters, dict):
            values["parameters"] = {name: value for name, value in parameters.items() if value is not None}
        fields = _validate(SimilarityBody, values)
        inputs = (fields.inputs.source_sentence, *fields.inputs.sentences)
        if len(inputs) == 1 or "" in inputs:
            raise EmptyInputsError("`inputs` cannot be empty", param="inputs")
        check_inputs(inputs, limits, "inputs[{}]")
        truncation = fields.parameters
        options = Options(truncation.prompt_name, normalize=True, truncate=truncation.truncate_side)
        return _tei_request(inputs, EMBED, options, headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer: the cosine of the first input with each of the others."""
        rows = np.asarray(rows_of(result))
        return dump_json(np.clip(rows[1:] @ rows[0], -1.0, 1.0))


class Tokenize(_TeiDialect):
    """The dialect of POST /tokenize."""

    body_model = TokenizeBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        if not all(isinstance(each, str) for each in inputs):
            raise InvalidRequestError("inputs: send a text, or a list of texts.", param="inputs")
        fields = _validate(TokenizeBody, values)
        options = Options(fields.prompt_name, special_tokens=fields.add_special_tokens)
        return _tei_request(inputs, TOKENIZE, options, headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the tokens of each input."""
        return _join(result)


class Decode(_TeiDialect):
    """The dialect of POST /decode."""

    body_model = DecodeBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        ids = values.pop("ids", None)
        inputs = _inputs(ids, limits, "ids") if ids else ()
        if not inputs or not all(isinstance(each, bytes) for each in inputs):
            raise InvalidRequestError("ids: send token ids, or a list of lists of token ids.", param="ids")
        fields = _validate(DecodeBody, values)
        return _tei_request(inputs, DECODE, Options(special_tokens=not fields.skip_special_tokens), headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the text of each input."""
        return _join(result)


def _validate(model: type[B], values: dict[str, Any]) -> B:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_body_error(error, model) from None


def _inputs(value: object, limits: RequestLimits, name: str = "inputs") -> Sequence[str | bytes]:
    is_list = isinstance(value, list) and value and type(value[0]) is not int and len(value) <= limits.max_inputs
    if value in ("", []) or (is_list and ("" in value or [] in value)):  # type: ignore[operator]
        raise EmptyInputsError(f"`{name}` cannot be empty", param=name)
    inputs = parse_inputs(value, limits.max_inputs, name)
    check_inputs(inputs, limits, name + "[{}]")
    return inputs


def _tei_request(
    inputs: Sequence[str | bytes], op: str, options: Options, headers: Mapping[str, str], limits: RequestLimits
) -> InferenceRequest:
    timeout_ms = resolve_timeout_ms(None, headers, len(inputs), limits)
    lane = parse_lane(headers.get(PRIORITY_HEADER))
    return InferenceRequest(tuple(inputs), timeout_ms, lane, options, op, model=headers.get(MODEL_HEADER))


def _join(result: InferenceResult) -> bytes:
    """Returns the values of all parts as one JSON array."""
    return b"[" + b",".join([each for part in result.parts if isinstance(part, Values) for each in part.values]) + b"]"
