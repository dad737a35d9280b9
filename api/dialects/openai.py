"""OpenAI's words for a request: POST /v1/embeddings, as its clients send it and read the answer.

Its contract is OpenAI's OpenAPI description (2.0.0) and what openai-python does with it: a client that names no
`encoding_format` gets base64, since the library asks for that by itself; an error has all four keys; and what is wrong
with a field is a 400, never a 422. Beyond the contract are `prompt_name`, `normalize`, `truncate` and
`truncation_direction`, named as Hugging Face's Text Embeddings Inference has them, `timeout_ms` and `priority`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from api.dialects.vectors import dump, errors_of, rows_of, timing_headers
from api.dialects.request import (
    MAX_MODEL,
    MAX_TIMEOUT_MS,
    PRIORITY_HEADER,
    Asked,
    check_inputs,
    lane_of,
    malformed,
    timeout_of,
)
from api.errors import status_of
from api.dialects.parsing import INPUTS, fields_of, inputs_of
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import Overloaded, RedbatchError, RequestError
from shared.messages import Options

if TYPE_CHECKING:
    from api.dispatch.dispatcher import Answered
    from api.http.handler import Dialect
    from api.settings import GatewaySettings
    from api.state import State


class EmbeddingsBody(BaseModel):
    """Body of POST /v1/embeddings."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input: Annotated[Any, WithJsonSchema(INPUTS)] = Field(default=None)  # read by hand
    model: str = Field(max_length=MAX_MODEL, description="One of those that /v1/models lists.")
    encoding_format: Literal["float", "base64"] = Field(default="float", description="Numbers, or float32 in base64.")
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIM, description="So many of the first numbers alone.")
    user: str | None = Field(default=None, description="Taken for the sake of clients, and not looked at.")
    prompt_name: str | None = Field(
        default=None, max_length=MAX_PROMPT_NAME, description="One of the model's prompts, as query or document."
    )
    normalize: bool = Field(default=True, description="Whether vectors have length 1.")
    truncate: bool = Field(default=True, description="Whether to cut a text that is too long for the model.")
    truncation_direction: Literal["left", "right"] = Field(default="right", description="At which end to cut it.")
    timeout_ms: int | None = Field(default=None, ge=1, le=MAX_TIMEOUT_MS, description="Time for the answer.")
    priority: Literal["interactive", "bulk"] | None = Field(default=None, description="Whether somebody waits for it.")
    on_error: Literal["fail", "null"] = Field(
        default="fail", description="null: an input that fails has null for its embedding, and stands in `errors`."
    )


class OpenAI:
    """The dialect of POST /v1/embeddings."""

    def __init__(self, route: str = "/v1/embeddings") -> None:
        self.route = route

    def for_body(self, body: bytes) -> Dialect:  # noqa: ARG002 - it has no other words
        """Returns whose words a body is in."""
        return self

    def most_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""
        return settings.max_v1_body_bytes

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers.

        Raises:
            InvalidRequest: it is malformed, or asks for nothing.
            TooLarge: it asks for too much.
        """
        given = fields_of(body)
        partial = given.get("on_error") == "null"
        inputs = inputs_of(given.pop("input", None), settings.max_inputs, "input", partial=partial)
        try:
            parsed = EmbeddingsBody.model_validate(given)
        except ValidationError as error:
            raise malformed(error) from None
        return Asked(
            inputs,
            timeout_of(parsed.timeout_ms, headers, len(inputs), settings),
            lane_of(parsed.priority or headers.get(PRIORITY_HEADER)),
            Options(
                parsed.prompt_name,
                parsed.normalize,
                parsed.dimensions,
                parsed.truncation_direction if parsed.truncate else "no",
            ),
            partial=partial,
            refused=check_inputs(inputs, settings, "input[{}]", partial=partial),
            base64=parsed.encoding_format == "base64",
            model=parsed.model,
        )

    def answer(self, asked: Asked, answered: Answered) -> bytes:
        """Returns the body of an answer with vectors."""
        rows: Any = rows_of(answered)
        if asked.base64:
            rows = [None if each is None else base64.b64encode(each.tobytes()).decode() for each in rows]
        told = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        usage = {"prompt_tokens": answered.tokens, "total_tokens": answered.tokens}
        whole = {"object": "list", "data": told, "model": asked.model, "usage": usage}
        return dump(whole | {"errors": errors_of(answered.parts)} if asked.partial else whole)

    def headers(self, state: State, asked: Asked, answered: Answered, took_s: float) -> dict[str, str]:  # noqa: ARG002
        """Returns what is told beside an answer."""
        return timing_headers(answered)

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:  # noqa: ARG002 - it is in a header
        """Returns status and body of an answer with an error."""
        param = error.param if isinstance(error, RequestError) else None
        told = {"message": error.message, "type": kind_of(error), "param": param, "code": error.code}
        return status_of(error), orjson.dumps({"error": told})


def kind_of(error: RedbatchError) -> str:
    """Returns what OpenAI would call this kind of error."""
    if isinstance(error, RequestError):
        return "invalid_request_error"
    return "rate_limit_error" if isinstance(error, Overloaded) else "server_error"
