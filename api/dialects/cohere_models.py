"""The answers of Cohere's embedding routes as pydantic models, for OpenAPI only. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.dialects.quantization import OutputType
from api.dialects.response_models import EXAMPLE_ID, ONE, TWO, Base64Vector, Vector, examples

_META = {
    "api_version": {"version": "2", "is_experimental": False},
    "billed_units": {"input_tokens": 6},
}


class CohereUnits(BaseModel):
    """What a request of Cohere's API counts for."""

    model_config = examples({"input_tokens": 6})

    input_tokens: int


class CohereMeta(BaseModel):
    """The facts about a request of Cohere's API."""

    model_config = examples(_META)

    api_version: dict[str, Any]
    billed_units: CohereUnits
    warnings: list[str] = Field(default_factory=list, description="Which texts were truncated; only if there are any.")


class CohereEmbedAnswer(BaseModel):
    """Answer of POST /v2/embed: for each number format an array with the vector of each text."""

    model_config = examples(
        {
            "id": EXAMPLE_ID,
            "response_type": "embeddings_by_type",
            "embeddings": {"float": [ONE, TWO]},
            "texts": ["one", "two"],
            "meta": _META,
        }
    )

    id: str
    response_type: Literal["embeddings_by_type"]
    embeddings: dict[OutputType, list[Vector | list[int] | Base64Vector]]
    texts: list[str]
    meta: CohereMeta


class CohereEmbedV1Answer(BaseModel):
    """Answer of POST /v1/embed: the vector of each text, or as /v2/embed if the body names types."""

    model_config = examples(
        {
            "id": EXAMPLE_ID,
            "response_type": "embeddings_floats",
            "embeddings": [ONE, TWO],
            "texts": ["one", "two"],
            "meta": _META | {"api_version": {"version": "1"}},
        }
    )

    id: str
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[Vector] | dict[OutputType, list[Vector | list[int] | Base64Vector]]
    texts: list[str]
    meta: CohereMeta


class CohereErrorAnswer(BaseModel):
    """An error in Cohere's format."""

    model_config = examples({"id": EXAMPLE_ID, "message": "The queue is full: try again in 2 s."})

    id: str
    message: str
