"""Redbatch's own words for a request: POST /embed with `text` or `texts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.vectors import dump, errors_of, rows_of, timing_headers
from api.dialects.request import (
    MAX_MODEL,
    MAX_TIMEOUT_MS,
    MODEL_HEADER,
    PRIORITY_HEADER,
    Asked,
    check_inputs,
    lane_of,
    malformed,
    timeout_of,
)
from api.errors import error_body, status_of
from api.dialects.tei import Embed, is_tei
from shared.errors import InvalidRequest, RedbatchError

if TYPE_CHECKING:
    from api.dispatch.dispatcher import Answered
    from api.http.handler import Dialect
    from api.settings import GatewaySettings
    from api.state import State

TEI = Embed("/embed")
HINT = ' Send {"text": "..."} or {"texts": ["..."]}.'


class How(BaseModel):
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


class EmbedBody(How):
    """Body of POST /embed: `text` for one vector, or `texts` for many."""

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    # fail_fast: a body of a million numbers would make a million errors, and hold up everybody for seconds
    texts: list[str] | None = Field(default=None, description="Some texts.", fail_fast=True)


class BatchBody(How):
    """Body of POST /batch_embed."""

    texts: list[str] = Field(description="Some texts.", min_length=1, fail_fast=True)


class Native:
    """The dialect of POST /embed, where TEI's clients ask as well."""

    route = "/embed"

    def for_body(self, body: bytes) -> Dialect:
        """Returns whose words a body is in. Raises InvalidRequest: those of two."""
        return TEI if is_tei(body) else self

    def most_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""
        return settings.max_body_bytes

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers.

        Raises:
            InvalidRequest: it is malformed, or asks for nothing.
            TooLarge: it asks for too much.
        """
        try:
            parsed = EmbedBody.model_validate_json(body)
        except ValidationError as error:
            raise malformed(error, HINT) from None
        inputs, single = _inputs(parsed)
        partial = parsed.on_error == "null"
        return Asked(
            inputs,
            timeout_of(parsed.timeout_ms, headers, len(inputs), settings),
            lane_of(parsed.priority or headers.get(PRIORITY_HEADER)),
            partial=partial,
            refused=check_inputs(inputs, settings, "text" if single else "texts[{}]", partial=partial),
            single=single,
            model=parsed.model or headers.get(MODEL_HEADER),
        )

    def answer(self, asked: Asked, answered: Answered) -> bytes:
        """Returns the body of an answer with vectors."""
        rows = rows_of(answered)
        told = {"embedding": rows[0]} if asked.single else {"embeddings": rows}
        return dump(told | {"errors": errors_of(answered.parts)} if asked.partial else told)

    def headers(self, state: State, asked: Asked, answered: Answered, took_s: float) -> dict[str, str]:  # noqa: ARG002
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

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for; raises as /embed does, and for a `text`."""
        asked = super().parse(body, headers, settings)
        if asked.single:
            raise InvalidRequest('Send {"texts": ["...", ...]}; POST /embed takes a single text.', param="text")
        return asked


def _inputs(parsed: EmbedBody) -> tuple[tuple[str, ...], bool]:
    if (parsed.text is None) == (parsed.texts is None):
        raise InvalidRequest('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    if parsed.text is not None:
        return (parsed.text,), True
    if not parsed.texts:
        raise InvalidRequest("texts is empty: send at least one text.")
    return tuple(parsed.texts), False
