"""Redbatch's own words for a request: POST /embed with `text` or `texts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.request import (
    MAX_MODEL,
    MAX_TIMEOUT_MS,
    MODEL_HEADER,
    PRIORITY_HEADER,
    InferenceRequest,
    check_inputs,
    invalid_body_error,
    parse_lane,
    resolve_timeout_ms,
    texts_of,
)
from api.dialects.tei import Embed, is_tei
from api.dialects.vectors import dump_json, errors_of, rows_of, timing_headers
from api.errors import error_body, status_of
from shared.errors import InvalidRequestError, RedbatchError

if TYPE_CHECKING:
    from api.dialects.base import DeviceInfo, Dialect
    from api.dialects.request import InferenceResult
    from api.settings import GatewaySettings

TEI = Embed("/embed")
HINT = ' Send {"text": "..."} or {"texts": ["..."]}.'


class RequestOptions(BaseModel):
    """What may be said of how to answer."""

    model_config = ConfigDict(strict=True, extra="ignore")

    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_TIMEOUT_MS, description="Time for the answer; goes before the header X-Timeout-Ms."
    )
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None,
        description="interactive (the default), or bulk for what nobody waits for: it runs in the room that others "
        "leave. Goes before the header X-Priority.",
    )
    model: str | None = Field(
        default=None,
        max_length=MAX_MODEL,
        description="One of those that /v1/models lists, or else this gateway's own; goes before the header X-Model.",
    )
    on_error: Literal["fail", "null"] = Field(
        default="fail",
        description="null: an input that fails has null for its vector, and stands in `errors` with its index, a code "
        "and a message, while the others have theirs.",
    )


class EmbedBody(RequestOptions):
    """Body of POST /embed: `text` for one vector, or `texts` for many."""

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    # fail_fast: a body of a million numbers would make a million errors, and hold up everybody for seconds
    texts: list[str] | None = Field(default=None, description="Some texts.", fail_fast=True)


class BatchBody(RequestOptions):
    """Body of POST /batch_embed."""

    texts: list[str] = Field(description="Some texts.", min_length=1, fail_fast=True)


class Native:
    """The dialect of POST /embed, where TEI's clients ask as well."""

    route = "/embed"

    def for_body(self, body: bytes) -> Dialect:
        """Returns whose words a body is in. Raises InvalidRequestError: those of two."""
        return TEI if is_tei(body) else self

    def max_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""
        return settings.max_body_bytes

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> InferenceRequest:
        """Returns what a body asks for, and where it is silent, the headers.

        Raises:
            InvalidRequestError: it is malformed, or asks for nothing.
            TooLarge: it asks for too much.
        """
        try:
            parsed = EmbedBody.model_validate_json(body)
        except ValidationError as error:
            raise invalid_body_error(error, HINT) from None
        inputs, single = tuple(texts_of(parsed.text, parsed.texts)), parsed.text is not None
        partial = parsed.on_error == "null"
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(parsed.timeout_ms, headers, len(inputs), settings),
            parse_lane(parsed.priority or headers.get(PRIORITY_HEADER)),
            partial=partial,
            refused=check_inputs(inputs, settings, "text" if single else "texts[{}]", partial=partial),
            single=single,
            model=parsed.model or headers.get(MODEL_HEADER),
        )

    def answer(self, asked: InferenceRequest, answered: InferenceResult) -> bytes:
        """Returns the body of an answer with vectors."""
        rows = rows_of(answered)
        told = {"embedding": rows[0]} if asked.single else {"embeddings": rows}
        return dump_json(told | {"errors": errors_of(answered.parts)} if asked.partial else told)

    def headers(
        self,
        workers: DeviceInfo,  # noqa: ARG002
        asked: InferenceRequest,  # noqa: ARG002
        answered: InferenceResult,
        took_s: float,  # noqa: ARG002
    ) -> dict[str, str]:
        """Returns what is told beside an answer."""
        return timing_headers(answered)

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
        return status_of(error), error_body(error.code, error.message, request_id)


class NativeBatch(Native):
    """The dialect of POST /batch_embed: `texts` alone."""

    route = "/batch_embed"

    def for_body(self, body: bytes) -> Dialect:  # noqa: ARG002 - it has no other words
        """Returns whose words a body is in."""
        return self

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> InferenceRequest:
        """Returns what a body asks for; raises as /embed does, and for a `text`."""
        asked = super().parse(body, headers, settings)
        if asked.single:
            raise InvalidRequestError('Send {"texts": ["...", ...]}; POST /embed takes a single text.', param="text")
        return asked
