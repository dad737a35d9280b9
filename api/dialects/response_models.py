"""The answers of the dialects as pydantic models, for OpenAPI only: for speed, they are encoded without these. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

Vector = list[float]
Base64Vector = Annotated[str, WithJsonSchema({"type": "string", "format": "byte"})]


Truncated = Annotated[
    list[int],
    Field(
        default_factory=list,
        description="Indices of the inputs that were truncated to the model's maximum length; only if there are any.",
    ),
]


class InputFailure(BaseModel):
    """An input that failed."""

    index: int
    code: str
    message: str


class _PartialAnswer(BaseModel):
    errors: list[InputFailure] = Field(default_factory=list, description="Only with on_error null.")


class EmbedAnswer(_PartialAnswer):
    """Answer to one `text`."""

    embedding: Vector | None
    truncated: Truncated


class EmbedManyAnswer(_PartialAnswer):
    """Answer to `texts`."""

    embeddings: list[Vector | None]
    truncated: Truncated


class PredictAnswer(_PartialAnswer):
    """Answer to one `input`."""

    output: Any = Field(description="Any JSON value that the function returns.")


class PredictManyAnswer(_PartialAnswer):
    """Answer to `inputs`."""

    outputs: list[Any] = Field(description="Any JSON values that the function returns.")


class Embedding(BaseModel):
    """One vector in an answer of POST /v1/embeddings."""

    object: Literal["embedding"]
    index: int
    embedding: Vector | Base64Vector | None


class Usage(BaseModel):
    """The number of tokens that the model has read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(_PartialAnswer):
    """Answer of POST /v1/embeddings."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage


class JobLinks(BaseModel):
    """Id and status of a job, and where to read it."""

    id: str
    status: str
    status_url: str
    result_url: str


class AcceptedJob(JobLinks):
    """A job that was accepted."""

    request_id: str


class Token(BaseModel):
    """A token in an answer of POST /tokenize; `start` and `stop` are its place in the text."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class ErrorFields(BaseModel):
    """The fields of an error."""

    code: str
    message: str
    request_id: str


class ErrorAnswer(BaseModel):
    """An error."""

    error: ErrorFields


class OpenAIErrorFields(BaseModel):
    """The fields of an error in OpenAI's format."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorAnswer(BaseModel):
    """An error in OpenAI's format."""

    error: OpenAIErrorFields


class TeiErrorAnswer(BaseModel):
    """An error in TEI's format."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
