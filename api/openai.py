"""OpenAI's words for a request: POST /v1/embeddings, as its clients send it and read the answer.

Its contract is OpenAI's OpenAPI description (2.0.0) and what openai-python does with it: a client that names no
`encoding_format` gets base64, since the library asks for that by itself; an error has all four keys; and what is wrong
with a field is a 400, never a 422. Beyond the contract are `prompt_name`, `normalize`, `truncate` and
`truncation_direction`, named as Hugging Face's Text Embeddings Inference has them, `timeout_ms` and `priority`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from api.asked import MAX_TIMEOUT_MS, PRIORITY_HEADER, Asked, check_sizes, lane_of, malformed, timeout_of, too_many
from api.errors import status_of
from shared.codec import MAX_DIM, MAX_PROMPT_NAME, encode_ids
from shared.errors import InvalidRequest, Overloaded, RedbatchError, RequestError, TooLarge
from shared.messages import Input, Options

if TYPE_CHECKING:
    from api.dispatcher import Embedded
    from api.settings import GatewaySettings

MOST_NESTED = 500_000
"""Most lists, objects and fields in a body, brackets within texts counted as well."""

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, "minItems": 1}
_INPUT = {
    "title": "Input",
    "description": "A text, texts, the token ids of a text, or those of texts.",
    "oneOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ],
}
_WHAT = "a text, a list of texts, a list of token ids, or a list of such lists"


class EmbeddingsBody(BaseModel):
    """Body of POST /v1/embeddings."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input: Annotated[Any, WithJsonSchema(_INPUT)] = Field(default=None)  # read by hand
    model: str = Field(description="One of those that /v1/models lists.")
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


class OpenAI:
    """The dialect of POST /v1/embeddings."""

    route = "/v1/embeddings"

    def most_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""
        return settings.max_v1_body_bytes

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers.

        Raises:
            InvalidRequest: it is malformed, or asks for nothing.
            TooLarge: it asks for too much.
        """
        given = _fields(body)
        inputs = _inputs(given.pop("input", None), settings.max_inputs)
        try:
            parsed = EmbeddingsBody.model_validate(given)
        except ValidationError as error:
            raise malformed(error) from None
        check_sizes(inputs, settings)
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
            base64=parsed.encoding_format == "base64",
            model=parsed.model,
        )

    def answer(self, asked: Asked, embedded: Embedded) -> bytes:
        """Returns the body of an answer with vectors."""
        dim = embedded.vectors[0].dim
        data = b"".join([each.data for each in embedded.vectors])
        vectors: Any = np.frombuffer(data, dtype="<f4").reshape(-1, dim)
        if asked.base64:
            size = 4 * dim
            vectors = [base64.b64encode(data[at : at + size]).decode() for at in range(0, len(data), size)]
        told = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}
        whole = {"object": "list", "data": told, "model": asked.model, "usage": usage}
        return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)

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


def _fields(body: bytes) -> dict[str, Any]:
    """Returns the fields of a body; null stands for one that is left out.

    orjson is the fastest to make values of 32 MB: a tenth of a second for texts, one second for token ids. Lists and
    objects would take it several seconds and a gigabyte; there are no more of them than in any sensible body.

    Raises:
        InvalidRequest: it is no JSON object.
        TooLarge: it holds too many lists or objects.
    """
    nested = body.count(b"[") + body.count(b"{") + body.count(b'":') - body.count(b'\\":')
    if nested > MOST_NESTED:
        raise TooLarge("The body holds too many lists and objects: send fewer at once.")
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error.msg}.") from None
    if not isinstance(given, dict):
        raise InvalidRequest('body: send an object: {"model": "...", "input": "..."}.')
    return {name: value for name, value in given.items() if value is not None}


def _inputs(given: object, most: int) -> tuple[Input, ...]:
    """Returns the inputs; a list of numbers is the ids of one text's tokens. A long list is not looked at in vain.

    Raises:
        InvalidRequest: these are no inputs.
        TooLarge: there are more than `most`.
    """
    inputs: tuple[Input, ...] = ()
    if isinstance(given, str):
        inputs = (given,) if given else ()
    elif isinstance(given, list) and given:
        if type(given[0]) is int:
            inputs = _ids(given)
        elif len(given) > most:
            raise too_many(len(given), most)
        elif isinstance(given[0], list):
            each_one = [_ids(each) for each in given]
            inputs = tuple(ids for (ids,) in each_one) if all(each_one) else ()
        elif all(isinstance(each, str) and each for each in given):
            inputs = tuple(given)
    if not inputs:
        raise InvalidRequest(f"input: send {_WHAT}; none of them empty.", param="input")
    return inputs


def _ids(given: object) -> tuple[Input, ...]:
    """Returns token ids as an input; nothing if they are none."""
    if not (isinstance(given, list) and given and all(type(each) is int for each in given)):  # True is an int too
        return ()
    try:
        return (encode_ids(given),)
    except struct.error:
        return ()
