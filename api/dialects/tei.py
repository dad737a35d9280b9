"""The dialect of Hugging Face's Text Embeddings Inference (TEI), version 1.9: its routes for embedding models. Pure.

The contract is what TEI's code does, where its OpenAPI page differs: a body that is valid JSON with invalid fields is a
422, an error is `{"error", "error_type"}` with the type in PascalCase, and even one text gives a list of vectors.
`inputs` may be a text, the token ids of one, or a list that mixes both. Headers set time, lane and request id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, WithJsonSchema

from api.dialects.base import BaseDialect
from api.dialects.parsing import IDS, INPUTS, check_inputs, parse_fields, parse_inputs
from api.dialects.request import InferenceRequest
from api.dialects.tei_base import PROMPT, EmbedFields, TeiDialect, TeiModel, tei_request, validate_body
from api.dialects.tei_predict import TeiPredict
from api.dialects.tei_rerank import TeiRerank, is_tei_rerank
from api.dialects.vectors import dump_json, rows_of
from shared.codec import MAX_DIM
from shared.errors import (
    EmptyInputsError,
    InvalidRequestError,
    RequestError,
)
from shared.messages import CLASSIFY, DECODE, EMBED, EMBED_ALL, EMBED_SPARSE, SCORE, TOKENIZE, Options, Values, Vectors

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

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


class EmbedAllBody(EmbedFields):
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


class SimilarityInputs(TeiModel):
    """The texts that POST /similarity compares."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SIMILARITY_INPUTS]})

    source_sentence: str = Field(json_schema_extra={"minLength": 1})
    sentences: list[str] = Field(fail_fast=True, json_schema_extra={"minItems": 1})


class SimilarityBody(TeiModel):
    """Body of POST /similarity."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": _SIMILARITY_INPUTS}]})

    inputs: SimilarityInputs
    parameters: EmbedFields = Field(default_factory=EmbedFields)


class TokenizeBody(TeiModel):
    """Body of POST /tokenize."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["Hello, world"]}]})

    inputs: Annotated[Any, WithJsonSchema(_TEXTS)] = Field(default=None)  # parsed by parse_inputs
    add_special_tokens: bool = Field(
        default=True, description="Whether to add the special tokens that the model reads."
    )
    prompt_name: str | None = PROMPT


class DecodeBody(TeiModel):
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


class Embed(TeiDialect):
    """The dialect of POST /embed."""

    body_model = TeiBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        fields = validate_body(TeiBody, values)
        options = _options_of(fields, normalize=fields.normalize, dimensions=fields.dimensions)
        return tei_request(inputs, EMBED, options, headers, limits, fields.purpose)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with vectors."""
        return dump_json(list(rows_of(result)))


class EmbedAll(TeiDialect):
    """The dialect of POST /embed_all: a vector for each token."""

    body_model = EmbedAllBody
    op = EMBED_ALL

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        fields = validate_body(EmbedAllBody, values)
        return tei_request(inputs, self.op, _options_of(fields), headers, limits, fields.purpose)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the vectors of each input's tokens."""
        answer = []
        for part in result.parts:
            if isinstance(part, Vectors):
                vectors = np.frombuffer(part.data, dtype="<f4").reshape(-1, part.dim)
                answer += np.split(vectors, np.cumsum(part.counts)[:-1])
        return dump_json(answer)


class EmbedSparse(EmbedAll):
    """The dialect of POST /embed_sparse: the weights of tokens of the vocabulary."""

    op = EMBED_SPARSE

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the weights of each input."""
        return _join(result)


class DefaultPredict(TeiPredict):
    """The dialect of POST / and POST /invocations if the model is a classifier."""

    has_model = False


class Default(Embed):
    """The dialect of POST / and POST /invocations: of /embed, /embed_sparse, /rerank or /predict, as the model has it.

    With `texts`, a body is one of /rerank, which models of embeddings have here too.
    """

    body_setting = "max_v1_body_bytes"  # as of /rerank

    def for_body(self, body: bytes) -> BaseDialect:
        """Returns the dialect of a body. Raises InvalidRequestError: the body mixes two."""
        return TeiRerank(self.route) if is_tei_rerank(body, "inputs") else self

    def for_ops(self, body: bytes) -> Sequence[tuple[str, BaseDialect]]:  # noqa: ARG002 - any body
        """Returns the dialects for sparse encoders, for rerankers, which have labels too, and for classifiers."""
        return (
            (EMBED_SPARSE, EmbedSparse(self.route)),
            (SCORE, TeiRerank(self.route)),
            (CLASSIFY, DefaultPredict(self.route)),
        )


class Similarity(TeiDialect):
    """The dialect of POST /similarity: cosines of vectors."""

    body_model = SimilarityBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        parameters = values.get("parameters")
        if isinstance(parameters, dict):
            values["parameters"] = {name: value for name, value in parameters.items() if value is not None}
        fields = validate_body(SimilarityBody, values)
        inputs = (fields.inputs.source_sentence, *fields.inputs.sentences)
        if len(inputs) == 1 or "" in inputs:
            raise EmptyInputsError("`inputs` cannot be empty", param="inputs")
        check_inputs(inputs, limits, "inputs[{}]")
        options = _options_of(fields.parameters, normalize=True)
        return tei_request(inputs, EMBED, options, headers, limits, fields.parameters.purpose)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer: the cosine of the first input with each of the others."""
        rows = np.asarray(rows_of(result))
        return dump_json(np.clip(rows[1:] @ rows[0], -1.0, 1.0))


class Tokenize(TeiDialect):
    """The dialect of POST /tokenize."""

    body_model = TokenizeBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        inputs = _inputs(values.pop("inputs", None), limits)
        if not all(isinstance(each, str) for each in inputs):
            raise InvalidRequestError("inputs: send a text, or a list of texts.", param="inputs")
        fields = validate_body(TokenizeBody, values)
        options = Options(fields.prompt_name, special_tokens=fields.add_special_tokens)
        return tei_request(inputs, TOKENIZE, options, headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the tokens of each input."""
        return _join(result)


class Decode(TeiDialect):
    """The dialect of POST /decode."""

    body_model = DecodeBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        ids = values.pop("ids", None)
        inputs = _inputs(ids, limits, "ids") if ids else ()
        if not inputs or not all(isinstance(each, bytes) for each in inputs):
            raise InvalidRequestError("ids: send token ids, or a list of lists of token ids.", param="ids")
        fields = validate_body(DecodeBody, values)
        return tei_request(inputs, DECODE, Options(special_tokens=not fields.skip_special_tokens), headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:  # noqa: ARG002 - one form
        """Returns the body of an answer with the text of each input."""
        return _join(result)


def _options_of(fields: EmbedFields, *, normalize: bool | None = None, dimensions: int | None = None) -> Options:
    instruction = fields.instruction or None
    return Options(fields.prompt_name, normalize, dimensions, fields.truncate_side, instruction=instruction)


def _inputs(value: object, limits: RequestLimits, name: str = "inputs") -> Sequence[str | bytes]:
    is_list = isinstance(value, list) and value and type(value[0]) is not int and len(value) <= limits.max_inputs
    if value in ("", []) or (is_list and ("" in value or [] in value)):  # type: ignore[operator]
        raise EmptyInputsError(f"`{name}` cannot be empty", param=name)
    inputs = parse_inputs(value, limits.max_inputs, name)
    check_inputs(inputs, limits, name + "[{}]")
    return inputs


def _join(result: InferenceResult) -> bytes:
    """Returns the values of all parts as one JSON array."""
    return b"[" + b",".join([each for part in result.parts if isinstance(part, Values) for each in part.values]) + b"]"
