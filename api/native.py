"""Redbatch's own words for a request: POST /embed with `text` or `texts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.answer import embed_body
from api.asked import MAX_TIMEOUT_MS, PRIORITY_HEADER, Asked, check_sizes, lane_of, malformed, timeout_of
from api.errors import error_body, status_of
from shared.errors import InvalidRequest, RedbatchError

if TYPE_CHECKING:
    from api.dispatcher import Embedded
    from api.settings import GatewaySettings

HINT = ' Send {"text": "..."} or {"texts": ["..."]}.'


class EmbedBody(BaseModel):
    """Body of POST /embed: `text` for one vector, or `texts` for many."""

    model_config = ConfigDict(strict=True, extra="ignore")

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    # fail_fast: a body of a million numbers would make a million errors, and hold up everybody for seconds
    texts: list[str] | None = Field(default=None, description="Some texts.", fail_fast=True)
    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_TIMEOUT_MS, description="Time for the answer; goes before the header X-Timeout-Ms."
    )
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None,
        description="interactive (the default), or bulk for what nobody waits for: it runs in the room that others "
        "leave. Goes before the header X-Priority.",
    )


class Native:
    """The dialect of POST /embed."""

    route = "/embed"

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
        check_sizes(inputs, settings)
        timeout_ms = timeout_of(parsed.timeout_ms, headers, len(inputs), settings)
        return Asked(inputs, timeout_ms, lane_of(parsed.priority or headers.get(PRIORITY_HEADER)), single=single)

    def answer(self, asked: Asked, embedded: Embedded) -> bytes:
        """Returns the body of an answer with vectors."""
        return embed_body(embedded, single=asked.single)

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
        return status_of(error), error_body(error.code, error.message, request_id)


def _inputs(parsed: EmbedBody) -> tuple[tuple[str, ...], bool]:
    if (parsed.text is None) == (parsed.texts is None):
        raise InvalidRequest('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    single = parsed.text is not None
    inputs = (parsed.text,) if parsed.text is not None else tuple(parsed.texts or ())
    if not inputs:
        raise InvalidRequest("texts is empty: send at least one text.")
    empty = next((i for i, text in enumerate(inputs) if not text), None)
    if empty is not None:
        raise InvalidRequest("text is empty." if single else f"texts[{empty}] is empty.")
    return inputs, single
