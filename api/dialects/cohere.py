"""Cohere's dialect: POST /v2/embed and /v1/embed, as cohere-python sends requests and reads answers. Pure.

The contract is Cohere's OpenAPI description (e814c8a): `embeddings` is an object with an array for each of
`embedding_types`, the answer repeats the texts, and an error has `id` and `message`. Images are refused. The first
version has a single array of vectors if the body names no types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.base import BaseDialect
from api.dialects.headers import lane_of, resolve_timeout_ms
from api.dialects.input_types import PurposeFields
from api.dialects.parsing import Unserved, check_inputs, check_served, invalid_body_error, parse_fields
from api.dialects.quantization import FLOAT, OutputType, encode_rows, options_for
from api.dialects.request import MAX_MODEL, MODEL_HEADER, InferenceRequest
from api.dialects.truncation import with_warnings
from api.dialects.vectors import dump_json, rows_of
from api.errors import status_of
from shared.codec import MAX_CUT_TOKENS, MAX_DIM, MAX_PROMPT_NAME
from shared.errors import InvalidRequestError, RedbatchError, TooLargeError
from shared.messages import Options

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

LOWEST_PRIORITY, INVALID_FIELD = 999, 422
CUT: Mapping[str, Literal["right", "left", "no"]] = {"END": "right", "START": "left", "NONE": "no"}
API_VERSION: Mapping[str, Any] = {"version": "2", "is_experimental": False}
FIRST_API_VERSION: Mapping[str, Any] = {"version": "1"}
UNSERVED: Unserved = {
    "images": ((), "images are not embedded here: send texts."),
}


class TextPart(BaseModel):
    """A part of an input: a text."""

    model_config = ConfigDict(
        strict=True, extra="ignore", json_schema_extra={"examples": [{"type": "text", "text": "one"}]}
    )

    type: Literal["text"]
    text: str


class ContentInput(BaseModel):
    """An input of parts, whose texts are joined."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={"examples": [{"content": [{"type": "text", "text": "one"}]}]},
    )

    content: list[TextPart] = Field(min_length=1, fail_fast=True)


class CohereEmbedV1Body(PurposeFields):
    """Body of POST /v1/embed."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={"examples": [{"input_type": "search_document", "texts": ["one", "two"]}]},
    )

    model: str | None = Field(default=None, max_length=MAX_MODEL, description="A model that /v1/models lists.")
    prompt_name: str | None = Field(
        default=None,
        max_length=MAX_PROMPT_NAME,
        description="One of the model's prompts, in place of an input_type. Empty: none, not even its default.",
    )
    texts: list[str] | None = Field(default=None, description="Several texts.", fail_fast=True)
    inputs: list[ContentInput] | None = Field(default=None, description="In place of texts.", fail_fast=True)
    embedding_types: list[OutputType] | None = Field(
        default=None,
        min_length=1,
        description="Number formats of the vectors; the answer has an array for each. By default a single array of "
        "numbers.",
    )
    output_dimension: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DIM,
        description="Truncate vectors to this many dimensions, before they are normalized.",
    )
    truncate: Literal["NONE", "START", "END"] = Field(
        default="END", description="Side from which to truncate a text that is too long; NONE makes it an error."
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CUT_TOKENS,
        description="Maximum tokens that are read of a text, with special tokens; at most the model's.",
    )
    priority: int | None = Field(
        default=None,
        ge=0,
        le=LOWEST_PRIORITY,
        description="Above 0 for requests that no user waits for: they run as bulk.",
    )

    def all_texts(self) -> list[str]:
        """Returns the texts. Raises InvalidRequestError: there are none, or both `texts` and `inputs`."""
        if (self.texts is None) == (self.inputs is None):
            raise InvalidRequestError('Send {"texts": ["...", ...]}, or inputs.', param="texts")
        texts = self.texts or ["".join(part.text for part in each.content) for each in self.inputs or ()]
        if not texts:
            raise InvalidRequestError("texts is empty: send at least one text.", param="texts")
        return texts


class CohereEmbedBody(CohereEmbedV1Body):
    """Body of POST /v2/embed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "minilm", "input_type": "search_document", "texts": ["one", "two"]}]},
    )

    model: str = Field(max_length=MAX_MODEL, description="A model that /v1/models lists.")
    embedding_types: list[OutputType] = Field(
        default=[FLOAT], min_length=1, description="Number formats of the vectors; the answer has an array for each."
    )


class CohereEmbed(BaseDialect):
    """The dialect of POST /v2/embed."""

    route = "/v2/embed"
    reports_model = True
    has_stamp = True
    body_model: type[CohereEmbedV1Body] = CohereEmbedBody
    body_setting = "max_v1_body_bytes"
    api_version = API_VERSION

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        check_served(values, UNSERVED)
        if MODEL_HEADER in headers:
            values.setdefault("model", headers[MODEL_HEADER])
        try:
            fields = self.body_model.model_validate(values)
        except ValidationError as error:
            raise invalid_body_error(error, self.body_model) from None
        inputs, types = tuple(fields.all_texts()), tuple(dict.fromkeys(fields.embedding_types or ()))
        check_inputs(inputs, limits, "texts[{}]")
        options = Options(
            fields.prompt_name,
            True,
            fields.output_dimension,
            CUT[fields.truncate],
            instruction=fields.instruction or None,
            max_tokens=fields.max_tokens,
        )
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(None, headers, len(inputs), limits),
            lane_of(fields.priority, headers),
            options_for(types, options, "embedding_types"),
            model=fields.model,
            output_types=types,
            input_type=fields.purpose,
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer with vectors."""
        rows, types = rows_of(result), request.output_types
        meta = {"api_version": self.api_version, "billed_units": {"input_tokens": result.tokens}}
        return dump_json(
            {
                "id": request.stamp.request_id,
                "response_type": "embeddings_by_type" if types else "embeddings_floats",
                "embeddings": {each: encode_rows(rows, each, int8_ranges=request.int8_ranges) for each in types}
                if types
                else rows,
                "texts": request.inputs,
                "meta": with_warnings(meta, result),
            }
        )

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
        return encode_cohere_error(error, request_id)


class CohereEmbedV1(CohereEmbed):
    """The dialect of POST /v1/embed."""

    route = "/v1/embed"
    body_model = CohereEmbedV1Body
    api_version = FIRST_API_VERSION


def encode_cohere_error(error: RedbatchError, request_id: str) -> tuple[int, bytes]:
    """Returns status and body of an answer with an error in Cohere's format.

    A field that is missing or invalid is a 422; what is too large is a 400, and so are fields that do not go together.
    """
    is_field = type(error) is InvalidRequestError and error.param is not None
    status = INVALID_FIELD if is_field else 400 if isinstance(error, TooLargeError) else status_of(error)
    return status, orjson.dumps({"id": request_id, "message": error.message})
