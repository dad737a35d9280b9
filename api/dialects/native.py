"""Redbatch's own dialect: POST /embed with `text` or `texts`, and POST /batch_embed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.base import BaseDialect
from api.dialects.headers import lane_of, resolve_timeout_ms
from api.dialects.long_text import CUT, LONG_TEXT, LongText, chunks_of, with_long_text
from api.dialects.parsing import check_inputs, invalid_body_error, texts_of
from api.dialects.parts import RETURN, Part, rows_of_parts, with_parts
from api.dialects.quantization import FLOAT, FLOATS, OutputType, encode_rows, options_for
from api.dialects.request import MAX_MODEL, MAX_TIMEOUT_MS, MODEL_HEADER, InferenceRequest
from api.dialects.strict_body import StrictBody
from api.dialects.tei import Embed, is_tei
from api.dialects.text_options import TextOptions
from api.dialects.vectors import dump_json, encode_failures, rows_of
from shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

TEI = Embed("/embed")
PLAIN_BYTES = 4 * 2**10
"""A longer body is not tried as a plain one: if it has options, it is read twice."""

HINT = ' Send {"text": "..."} or {"texts": ["..."]}.'


class RequestOptions(StrictBody):
    """The options that the bodies of /embed, /batch_embed and /predict share."""

    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TIMEOUT_MS,
        description="Maximum time for the answer; takes precedence over the header X-Timeout-Ms.",
    )
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None,
        description="interactive (the default), or bulk for requests that no user waits for: they run in the capacity "
        "that other requests leave. Takes precedence over the header X-Priority.",
    )
    model: str | None = Field(
        default=None,
        max_length=MAX_MODEL,
        description="A model that /v1/models lists; by default the gateway's own. Takes precedence over the header "
        "X-Model.",
    )
    on_error: Literal["fail", "null"] = Field(
        default="fail",
        description="null: an input that fails has null as its result, and is listed in `errors` with its index, a "
        "code and a message; the other inputs have their results.",
    )


class OutputOptions(TextOptions):
    """The options of the vectors in an answer; a job has float32."""

    long_text: LongText = LONG_TEXT
    output_dtype: OutputType = Field(
        default="float", description="Number format of the vectors; of binary and ubinary, eight numbers a byte."
    )
    parts: list[Part] | None = RETURN


class EmbedBody(RequestOptions, OutputOptions):
    """Body of POST /embed: `text` for one vector, or `texts` for several."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Hello, world"}, {"texts": ["one", "two"]}]})

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    # fail_fast: a body of a million numbers would make a million errors, and block all other requests for seconds
    texts: list[str] | None = Field(default=None, description="Several texts.", fail_fast=True)


class BatchBody(RequestOptions, OutputOptions):
    """Body of POST /batch_embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": ["one", "two"]}]})

    texts: list[str] = Field(description="Several texts.", min_length=1, fail_fast=True)


class PlainBody(msgspec.Struct, forbid_unknown_fields=True):
    """A body of texts alone, as most are: msgspec reads it in a ninth of the time that pydantic takes."""

    text: str | None = None
    texts: list[str] | None = None


_PLAIN_BODIES = msgspec.json.Decoder(PlainBody)


def read_plain(body: bytes) -> PlainBody | None:
    """Returns the texts in a small body without options; None: it is large, has other fields, or is malformed."""
    if len(body) > PLAIN_BYTES:
        return None
    try:
        return _PLAIN_BODIES.decode(body)
    except ValueError:  # also of msgspec
        return None


class Native(BaseDialect):
    """The dialect of POST /embed, which also takes TEI's."""

    route = "/embed"
    body_model: type[BaseModel] = EmbedBody
    strict_query = True

    def for_body(self, body: bytes) -> BaseDialect:
        """Returns the dialect of a body: TEI's if it has `inputs`. Raises InvalidRequestError: the body mixes two."""
        return TEI if is_tei(body) else self

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        plain = read_plain(body)
        if plain is None:
            return self._parse_all(body, headers, limits)
        inputs, single = tuple(texts_of(plain.text, plain.texts)), plain.text is not None
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(None, headers, len(inputs), limits),
            lane_of(None, headers),
            input_errors=check_inputs(inputs, limits, "text" if single else "texts[{}]"),
            single=single,
            model=headers.get(MODEL_HEADER),
        )

    def _parse_all(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns what `parse` does, for a body with any of its fields."""
        try:
            fields = EmbedBody.model_validate_json(body)
        except ValidationError as error:
            raise invalid_body_error(error, self.body_model, HINT) from None
        fields.check_fields(self.body_model)
        inputs, single = tuple(texts_of(fields.text, fields.texts)), fields.text is not None
        partial, types, options = fields.on_error == "null", FLOATS, fields.options
        if fields.output_dtype != FLOAT or fields.long_text != CUT:  # hardly ever
            types = (fields.output_dtype,)
            options = with_long_text(options_for(types, options, "output_dtype"), fields.long_text, partial=partial)
        request = InferenceRequest(
            inputs,
            resolve_timeout_ms(fields.timeout_ms, headers, len(inputs), limits),
            lane_of(fields.priority, headers),
            options,
            partial=partial,
            input_errors=check_inputs(inputs, limits, "text" if single else "texts[{}]", partial=partial),
            single=single,
            model=fields.model or headers.get(MODEL_HEADER),
            output_types=types,
            input_type=fields.purpose,
            long_text=fields.long_text,
        )
        return request if fields.parts is None else with_parts(request, fields.parts)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer with vectors, or with the parts of each embedding."""
        rows: Sequence[Any] | NDArray[Any]
        if request.parts:
            rows = rows_of_parts(request, result)
        else:
            rows = encode_rows(rows_of(result), request.output_types[0], int8_ranges=request.int8_ranges)
        answer: dict[str, Any] = {"embedding": rows[0]} if request.single else {"embeddings": rows}
        if result.spans:
            chunks = chunks_of(result.spans, rows)
            answer = {"chunks": chunks[0] if request.single else chunks}
        if result.truncated:
            answer["truncated"] = result.truncated
        return dump_json(answer | {"errors": encode_failures(result.parts)} if request.partial else answer)


class NativeBatch(Native):
    """The dialect of POST /batch_embed: `texts` only."""

    route = "/batch_embed"
    body_model = BatchBody

    def for_body(self, body: bytes) -> BaseDialect:  # noqa: ARG002 - this route takes one dialect
        """Returns this dialect."""
        return self

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as /embed does, and for a `text`."""
        request = super().parse(body, headers, limits)
        if request.single:
            raise InvalidRequestError('Send {"texts": ["...", ...]}; POST /embed takes a single text.', param="text")
        return request
