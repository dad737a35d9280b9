"""OpenAI's dialect: POST /v1/embeddings, as OpenAI's clients send the request and read the answer. Pure.

The contract is OpenAI's OpenAPI description (2.0.0) and what openai-python does with it: a client that sets no
`encoding_format` gets base64, because the library requests it by default; an error has all four keys; and an invalid
field is a 400, never a 422. Fields beyond the contract are `prompt_name`, `normalize`, `truncate` and
`truncation_direction`, named as in Hugging Face's Text Embeddings Inference, and `timeout_ms` and `priority`; and those
of Voyage (`input_type`, `output_dtype`, `output_dimension`, `truncation`), Jina (`task`, `embedding_type`,
`normalized`) and vLLM (`truncate_prompt_tokens`, `truncation_side`, `use_activation`), whose clients send them to this
route. A field of theirs that would change the vectors and is not served is a 400.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from api.dialects.base import BaseDialect
from api.dialects.headers import PRIORITY, Priority, lane_of, resolve_timeout_ms
from api.dialects.input_types import PurposeFields
from api.dialects.long_text import LONG_TEXT, LongText, chunks_of, with_long_text
from api.dialects.parsing import (
    IDS,
    TEXT,
    Unserved,
    check_inputs,
    check_served,
    invalid_body_error,
    one_of,
    parse_inputs,
    parse_openai_fields,
)
from api.dialects.quantization import OutputType, encode_rows, options_for
from api.dialects.request import MAX_MODEL, MAX_TIMEOUT_MS, MODEL_HEADER, InferenceRequest
from api.dialects.strict_body import ROUTE_OF_FIELD
from api.dialects.truncation import CutFields, with_truncated
from api.dialects.vectors import dump_json, encode_failures, rows_of
from api.errors import status_of
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import InvalidRequestError, OverloadedError, RedbatchError, RequestError, TooLargeError
from shared.messages import Options

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits


UNSERVED: Unserved = {
    "late_chunking": ((False,), "each text is embedded separately here: leave it out."),
    "return_multivector": (
        (False,),
        'send {"return": ["multi_vector"]} to POST /embed, or the texts to POST /embed_all.',
    ),
    "add_special_tokens": ((True,), "texts always have special tokens here: send token ids for others."),
    "embed_dtype": (("float32",), "send output_dtype."),
    "endianness": (("native", "little"), "numbers in base64 are little-endian here."),
}
"""Fields of Jina and vLLM that this route does not have."""

_OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": TEXT},
    "required": ["text"],
    "additionalProperties": False,
}
_INPUTS: dict[str, Any] = {
    "description": "A text, the token ids of one text, or a list of texts, lists of token ids and objects with texts.",
    "anyOf": [TEXT, IDS, {"type": "array", "items": {"anyOf": [TEXT, IDS, _OBJECT]}, "minItems": 1}],
}


class EmbeddingsBody(CutFields, PurposeFields):
    """Body of POST /v1/embeddings."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={"examples": [{"model": "minilm", "input": ["one", "two"]}]},
    )

    input: Annotated[Any, WithJsonSchema(_INPUTS)] = Field(default=None)  # parsed by parse_inputs
    model: str = Field(max_length=MAX_MODEL, description="A model that /v1/models lists.")
    encoding_format: Literal["float", "base64"] = Field(default="float", description="Numbers, or float32 in base64.")
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DIM,
        description="Truncate vectors to this many dimensions, before they are normalized.",
    )
    user: str | None = Field(default=None, description="Accepted for compatibility; ignored.")
    prompt_name: str | None = Field(
        default=None,
        max_length=MAX_PROMPT_NAME,
        description="One of the model's prompts, as query or document. Empty: no prompt, not even the model's default.",
    )
    normalize: bool = Field(default=True, description="Whether to normalize vectors to length 1.")
    normalized: bool | None = Field(default=None, description="Jina's name of normalize.")
    use_activation: bool | None = Field(default=None, description="vLLM's name of normalize.")
    truncation: bool | None = Field(default=None, description="Voyage's name of truncate.")
    timeout_ms: int | None = Field(default=None, ge=1, le=MAX_TIMEOUT_MS, description="Maximum time for the answer.")
    priority: Priority | None = PRIORITY
    on_error: Literal["fail", "null"] = Field(
        default="fail",
        description="null: an input that fails has null as its embedding, and is listed in `errors`.",
    )
    long_text: LongText = LONG_TEXT
    output_dtype: OutputType = Field(
        default="float", description="Number format of the vectors; of binary and ubinary, eight numbers a byte."
    )
    embedding_type: OutputType | list[OutputType] | None = Field(
        default=None,
        description="Jina's name of output_dtype; with several, each embedding is an object with all of them.",
    )
    output_dimension: int | None = Field(default=None, ge=1, le=MAX_DIM, description="Voyage's name of dimensions.")

    @property
    def options(self) -> Options:
        """The options of the engine. Raises InvalidRequestError: two fields say different things."""
        options = super().options
        return options._replace(
            prompt_name=self.prompt_name,
            normalize=one_of(self, "normalize", "normalized", "use_activation"),
            dimensions=one_of(self, "dimensions", "output_dimension"),
            truncate=options.truncate if one_of(self, "truncate", "truncation") else "no",
            instruction=self.instruction or None,
        )

    @property
    def output_types(self) -> tuple[OutputType, ...]:
        """The number formats of the vectors. Raises InvalidRequestError: a list of none, or two fields that differ."""
        types = _as_types(one_of(self, "output_dtype", "embedding_type", key=_as_types))
        if not types:
            raise InvalidRequestError("embedding_type: name at least one type.", param="embedding_type")
        return types


def _as_types(value: OutputType | Sequence[OutputType]) -> tuple[OutputType, ...]:
    """Returns one number format, or each of several once."""
    return (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))


class OpenAI(BaseDialect):
    """The dialect of POST /v1/embeddings."""

    route = "/v1/embeddings"
    reports_model = True
    body_model: type[BaseModel] = EmbeddingsBody
    body_setting = "max_v1_body_bytes"

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_openai_fields(body)
        partial = values.get("on_error") == "null"
        if "input" not in values and (others := [name for name in values if name in ROUTE_OF_FIELD]):
            message = f"input: it is missing; {ROUTE_OF_FIELD[others[0]]} takes {others[0]}."
            raise InvalidRequestError(message, param="input")
        check_served(values, UNSERVED)
        try:
            texts = _texts_of(values.pop("input", None), limits.max_inputs)
            inputs = parse_inputs(texts, limits.max_inputs, "input", partial=partial)
        except TooLargeError as error:  # too many inputs, for which OpenAI answers 400
            raise InvalidRequestError(f"input: {error.message}", param="input") from None
        if MODEL_HEADER in headers:
            values.setdefault("model", headers[MODEL_HEADER])
        try:
            fields = EmbeddingsBody.model_validate(values)
        except ValidationError as error:
            raise invalid_body_error(error, EmbeddingsBody) from None
        types = fields.output_types
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(fields.timeout_ms, headers, len(inputs), limits),
            lane_of(fields.priority, headers),
            with_long_text(options_for(types, fields.options, "output_dtype"), fields.long_text, partial=partial),
            partial=partial,
            input_errors=check_inputs(inputs, limits, "input[{}]", partial=partial),
            base64=fields.encoding_format == "base64",
            model=fields.model,
            output_types=types,
            input_type=fields.purpose,
            long_text=fields.long_text,
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer with vectors."""
        rows = rows_of(result)
        ranges = request.int8_ranges
        by_type = [encode_rows(rows, each, base64=request.base64, int8_ranges=ranges) for each in request.output_types]
        embeddings = by_type[0] if len(by_type) == 1 else _by_type(request.output_types, by_type)
        if result.spans:
            chunks = chunks_of(result.spans, embeddings)
            data = [{"object": "embedding", "index": i} | each for i, own in enumerate(chunks) for each in own]
        else:
            data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(embeddings)]
        usage = with_truncated({"prompt_tokens": result.tokens, "total_tokens": result.tokens}, result)
        answer = {"object": "list", "data": data, "model": request.model, "usage": usage}
        return dump_json(answer | {"errors": encode_failures(result.parts)} if request.partial else answer)

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:  # noqa: ARG002 - in a header only
        """Returns status and body of an answer with an error."""
        return status_of(error), orjson.dumps({"error": openai_error(error)})


def openai_error(error: RedbatchError) -> dict[str, str | None]:
    """Returns an error as OpenAI's clients read it."""
    param = error.param if isinstance(error, RequestError) else None
    return {"message": error.message, "type": error_type(error), "param": param, "code": error.code}


def _texts_of(value: object, max_inputs: int) -> object:
    """Returns the field `input` with a text in place of each object with one, as Jina's clients send them.

    Raises:
        InvalidRequestError: an object has an image.
    """
    # Of token ids there may be many, and a list that is too long is refused before its items are read.
    if not isinstance(value, list) or not value or type(value[0]) is int or len(value) > max_inputs:
        return value
    if dict not in map(type, value):
        return value
    return [_text_of(each, index) if type(each) is dict else each for index, each in enumerate(value)]


def _text_of(value: dict[str, object], index: int) -> object:
    given = {name: each for name, each in value.items() if each is not None}
    if "image" in given:
        raise InvalidRequestError(f"input[{index}].image: images are not embedded here: send texts.", param="input")
    return given["text"] if given.keys() == {"text"} else value


def _by_type(types: Sequence[OutputType], encoded: Sequence[Iterable[Any]]) -> list[dict[str, Any] | None]:
    """Returns for each input an object with its vector in each number format; None for an input that failed."""
    rows = zip(*encoded, strict=True)
    return [None if row[0] is None else dict(zip(types, row, strict=True)) for row in rows]


def error_type(error: RedbatchError) -> str:
    """Returns OpenAI's type of an error."""
    if isinstance(error, RequestError):
        return "invalid_request_error"
    return "rate_limit_error" if isinstance(error, OverloadedError) else "server_error"
