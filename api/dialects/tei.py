"""The words of Hugging Face's Text Embeddings Inference (TEI), version 1.9: its routes for embedding models.

Its contract is what its code does, where its OpenAPI page says otherwise: a body that is understood and wrong is a 422,
an error is `{"error", "error_type"}` with the type in PascalCase, and even one text gives a list of vectors. `inputs`
may be a text, the token ids of one, or a list that mixes both. Time, lane and request id are asked for by headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from api.dialects.vectors import dump, rows_of
from api.dialects.request import MODEL_HEADER, PRIORITY_HEADER, Asked, check_inputs, lane_of, malformed, timeout_of
from api.dialects.parsing import IDS, INPUTS, fields_of, inputs_of
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import (
    BodyTimeout,
    BodyTooLarge,
    DeadlineExceeded,
    EmptyInputs,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    ModelError,
    NotFound,
    Overloaded,
    RedbatchError,
    RequestError,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
)
from shared.messages import DECODE, EMBED, EMBED_ALL, TOKENIZE, Options, Values, Vectors

if TYPE_CHECKING:
    from api.dispatch.dispatcher import Answered
    from api.http.handler import Dialect
    from api.settings import GatewaySettings
    from api.state import State


B = TypeVar("B", bound=BaseModel)
KINDS: dict[type[RedbatchError], tuple[int, str]] = {
    EmptyInputs: (400, "Empty"),
    Unauthorized: (401, "Validation"),
    Forbidden: (403, "Validation"),
    NotFound: (404, "Validation"),
    MethodNotAllowed: (405, "Validation"),
    BodyTimeout: (408, "Validation"),
    BodyTooLarge: (413, "Validation"),
    UnsupportedMediaType: (415, "Validation"),
    RequestError: (422, "Validation"),
    ModelError: (424, "Backend"),
    Overloaded: (429, "Overloaded"),
    Unavailable: (503, "Unhealthy"),
    DeadlineExceeded: (504, "Backend"),
    RedbatchError: (500, "Backend"),
}
"""Status and kind of each branch of the error tree. TEI itself has no timeouts."""

_TEXTS = {
    "description": "A text, or a list of texts.",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ],
}
_IDS = {"description": "Token ids, or a list of such.", "anyOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}]}
_PROMPT = Field(default=None, max_length=MAX_PROMPT_NAME, description="One of the model's prompts, as query.")


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Cut(_Body):
    truncate: bool = Field(default=True, description="Whether to cut a text that is too long for the model.")
    truncation_direction: Literal["Left", "left", "Right", "right"] = Field(default="right", description="Where to.")
    prompt_name: str | None = _PROMPT

    @property
    def cut(self) -> Literal["right", "left", "no"]:
        """Where a text that is too long is cut."""
        if not self.truncate:
            return "no"
        return "left" if self.truncation_direction.lower() == "left" else "right"


class EmbedAllBody(_Cut):
    """Body of POST /embed_all."""

    inputs: Annotated[Any, WithJsonSchema(INPUTS)] = Field(default=None)  # read by hand


class TeiBody(EmbedAllBody):
    """Body of POST /embed in TEI's words."""

    normalize: bool = Field(default=True, description="Whether vectors have length 1.")
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIM, description="So many of the first numbers alone.")


class Compared(_Body):
    """What POST /similarity compares."""

    source_sentence: str = Field(json_schema_extra={"minLength": 1})
    sentences: list[str] = Field(fail_fast=True, json_schema_extra={"minItems": 1})


class SimilarityBody(_Body):
    """Body of POST /similarity."""

    inputs: Compared
    parameters: _Cut = Field(default_factory=_Cut)


class TokenizeBody(_Body):
    """Body of POST /tokenize."""

    inputs: Annotated[Any, WithJsonSchema(_TEXTS)] = Field(default=None)  # read by hand
    add_special_tokens: bool = Field(default=True, description="Whether to add those that the model reads.")
    prompt_name: str | None = _PROMPT


class DecodeBody(_Body):
    """Body of POST /decode."""

    ids: Annotated[Any, WithJsonSchema(_IDS)] = Field(default=None)  # read by hand
    skip_special_tokens: bool = Field(default=True, description="Whether to leave them out of the text.")


def is_tei(body: bytes) -> bool:
    """Whether a body of POST /embed is in TEI's words: an object with `inputs`.

    Raises:
        InvalidRequest: it has Redbatch's own `text` or `texts` as well.
    """
    if b'"inputs"' not in body:
        return False
    try:
        given = fields_of(body)
    except RequestError:
        return False
    if "inputs" in given and ("text" in given or "texts" in given):
        raise InvalidRequest("Send inputs, text or texts: one of them.")
    return "inputs" in given


class _Tei:
    """What its routes have in common."""

    def __init__(self, route: str) -> None:
        self.route = route

    def for_body(self, body: bytes) -> Dialect:  # noqa: ARG002 - it has no other words
        """Returns whose words a body is in."""
        return self

    def most_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""
        return settings.max_body_bytes

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        raise NotImplementedError

    def answer(self, asked: Asked, answered: Answered) -> bytes:
        """Returns the body of an answer."""
        raise NotImplementedError

    def headers(self, state: State, asked: Asked, answered: Answered, took_s: float) -> dict[str, str]:
        """Returns TEI's measures: whole ms, characters and tokens of all inputs, and what kind of device computed."""
        took = str(round(took_s * 1000))
        return {
            "x-compute-type": state.compute_type(asked.model),
            "x-compute-time": took,
            "x-compute-characters": str(sum(len(each) for each in asked.inputs if isinstance(each, str))),
            "x-compute-tokens": str(answered.tokens),
            "x-total-time": took,
            "x-tokenization-time": str(round(answered.tokenize_ms)),
            "x-queue-time": str(round(answered.queue_ms)),
            "x-inference-time": str(round(answered.inference_ms)),
        }

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:  # noqa: ARG002 - it is in a header
        """Returns status and body of an answer with an error."""
        status, kind = next(KINDS[each] for each in type(error).__mro__ if each in KINDS)
        return status, orjson.dumps({"error": error.message, "error_type": kind})


class Embed(_Tei):
    """The dialect of POST /embed, of POST / and of POST /invocations."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        given = fields_of(body)
        inputs = _inputs(given.pop("inputs", None), settings)
        parsed = _validated(TeiBody, given)
        options = Options(parsed.prompt_name, parsed.normalize, parsed.dimensions, parsed.cut)
        return _asked(inputs, EMBED, options, headers, settings)

    def answer(self, asked: Asked, answered: Answered) -> bytes:  # noqa: ARG002 - always a list
        """Returns the body of an answer with vectors."""
        return dump(list(rows_of(answered)))


class EmbedAll(_Tei):
    """The dialect of POST /embed_all: a vector for each token."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        given = fields_of(body)
        inputs = _inputs(given.pop("inputs", None), settings)
        parsed = _validated(EmbedAllBody, given)
        return _asked(inputs, EMBED_ALL, Options(parsed.prompt_name, truncate=parsed.cut), headers, settings)

    def answer(self, asked: Asked, answered: Answered) -> bytes:  # noqa: ARG002 - see above
        """Returns the body of an answer with the vectors of each input's tokens."""
        told = []
        for part in answered.parts:
            if isinstance(part, Vectors):
                vectors = np.frombuffer(part.data, dtype="<f4").reshape(-1, part.dim)
                told += np.split(vectors, np.cumsum(part.counts)[:-1])
        return dump(told)


class Similarity(_Tei):
    """The dialect of POST /similarity: cosines."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        given = fields_of(body)
        how_given = given.get("parameters")
        if isinstance(how_given, dict):
            given["parameters"] = {name: value for name, value in how_given.items() if value is not None}
        parsed = _validated(SimilarityBody, given)
        inputs = (parsed.inputs.source_sentence, *parsed.inputs.sentences)
        if len(inputs) == 1 or "" in inputs:
            raise EmptyInputs("`inputs` cannot be empty", param="inputs")
        check_inputs(inputs, settings, "inputs[{}]")
        how = parsed.parameters
        return _asked(inputs, EMBED, Options(how.prompt_name, normalize=True, truncate=how.cut), headers, settings)

    def answer(self, asked: Asked, answered: Answered) -> bytes:  # noqa: ARG002 - see above
        """Returns the body of an answer: how like the first input each of the others is."""
        rows = np.asarray(rows_of(answered))
        return dump(np.clip(rows[1:] @ rows[0], -1.0, 1.0))


class Tokenize(_Tei):
    """The dialect of POST /tokenize."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        given = fields_of(body)
        inputs = _inputs(given.pop("inputs", None), settings)
        if not all(isinstance(each, str) for each in inputs):
            raise InvalidRequest("inputs: send a text, or a list of texts.", param="inputs")
        parsed = _validated(TokenizeBody, given)
        options = Options(parsed.prompt_name, special_tokens=parsed.add_special_tokens)
        return _asked(inputs, TOKENIZE, options, headers, settings)

    def answer(self, asked: Asked, answered: Answered) -> bytes:  # noqa: ARG002 - see above
        """Returns the body of an answer with the tokens of each input."""
        return _joined(answered)


class Decode(_Tei):
    """The dialect of POST /decode."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""
        given = fields_of(body)
        inputs = _inputs(given.pop("ids", None), settings, "ids")
        if not all(isinstance(each, bytes) for each in inputs):
            raise InvalidRequest("ids: send token ids, or a list of such lists.", param="ids")
        parsed = _validated(DecodeBody, given)
        return _asked(inputs, DECODE, Options(special_tokens=not parsed.skip_special_tokens), headers, settings)

    def answer(self, asked: Asked, answered: Answered) -> bytes:  # noqa: ARG002 - see above
        """Returns the body of an answer with the text of each input."""
        return _joined(answered)


def _validated(kind: type[B], given: dict[str, Any]) -> B:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise malformed(error) from None


def _inputs(given: object, settings: GatewaySettings, name: str = "inputs") -> Sequence[str | bytes]:
    several = isinstance(given, list) and given and type(given[0]) is not int and len(given) <= settings.max_inputs
    if given in ("", []) or (several and ("" in given or [] in given)):  # type: ignore[operator]
        raise EmptyInputs(f"`{name}` cannot be empty", param=name)
    inputs = inputs_of(given, settings.max_inputs, name)
    check_inputs(inputs, settings, name + "[{}]")
    return inputs


def _asked(
    inputs: Sequence[str | bytes], op: str, options: Options, headers: Mapping[str, str], settings: GatewaySettings
) -> Asked:
    timeout_ms = timeout_of(None, headers, len(inputs), settings)
    lane = lane_of(headers.get(PRIORITY_HEADER))
    return Asked(tuple(inputs), timeout_ms, lane, options, op, model=headers.get(MODEL_HEADER))


def _joined(answered: Answered) -> bytes:
    """Returns the arrays of all parts as one."""
    return (
        b"[" + b",".join([each for part in answered.parts if isinstance(part, Values) for each in part.values]) + b"]"
    )
