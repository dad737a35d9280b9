"""The answers of the dialects as pydantic models, for OpenAPI only: for speed, they are encoded without these. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from api.dialects.quantization import OutputType

EXAMPLE_ID = "5f0c8e3b9a7d4c21b6e0f4a19d2c7e58"
"""The id of the request, and of the job, in all examples."""

# What the model minilm returns, but of each vector three of its 384 numbers.
_HELLO = [-0.0561, 0.0355, 0.0046]
ONE, TWO = [-0.0342, -0.0121, -0.0346], [0.0165, -0.0044, -0.0952]
_FAILURE = {"index": 1, "code": "invalid_request", "message": "texts[1] is empty."}
_FULL = "The queue is full: try again in 2 s."


NULL = "\0"
"""Null in an example until the description is complete: FastAPI leaves out fields that are null."""


def replace_values(value: Any, old: object, new: object) -> Any:  # noqa: ANN401 - any JSON value
    """Returns a JSON value in which each `old` is `new`."""
    if isinstance(value, dict):
        return {name: replace_values(each, old, new) for name, each in value.items()}
    if isinstance(value, list):
        return [replace_values(each, old, new) for each in value]
    return new if value == old else value


def examples(*values: Any) -> ConfigDict:  # noqa: ANN401 - any JSON value
    """Returns the configuration of a model whose schema has these examples. It is built when it is first used."""
    return ConfigDict(json_schema_extra={"examples": replace_values(list(values), None, NULL)}, defer_build=True)


Vector = list[float]
Base64Vector = Annotated[str, WithJsonSchema({"type": "string", "format": "byte"})]
Vectors = Annotated[list[Vector], Field(examples=[[ONE, TWO]])]
TokenVectors = Annotated[
    list[list[Vector]],
    Field(
        examples=[
            [
                [[0.0783, -0.2271, 0.0432], [-0.0133, 0.0096, -0.1909], [-0.7838, -0.037, -0.5793]],
                [[0.1072, -0.3139, 0.1762], [0.9914, 0.1067, -0.8457], [-0.7714, 0.1195, -1.213]],
            ]
        ]
    ),
]


class TokenWeight(BaseModel):
    """A token of the vocabulary, by its id, and its weight."""

    model_config = examples({"index": 7592, "value": 1.2207})

    index: int
    value: float


SparseVectors = Annotated[
    list[list[TokenWeight]],
    Field(examples=[[[{"index": 2028, "value": 0.4631}], [{"index": 2048, "value": 0.7712}]]]),
]
_PARTS = {"dense": _HELLO, "sparse": [{"index": 7592, "value": 1.2207}]}


class TextParts(BaseModel):
    """The parts of a text's embedding that `return` names."""

    model_config = examples(_PARTS)

    dense: Vector | list[int] | Base64Vector | None = None
    sparse: list[TokenWeight] | None = None
    multi_vector: list[Vector | list[int] | Base64Vector] | None = None


Similarities = Annotated[list[float], Field(examples=[[0.5185, 0.3522]])]
Texts = Annotated[list[str], Field(examples=[["hello world"]])]

Truncated = Annotated[
    list[int],
    Field(
        default_factory=list,
        description="Indices of the inputs that were truncated to the model's maximum length; only if there are any.",
    ),
]


class InputFailure(BaseModel):
    """An input that failed."""

    model_config = examples(_FAILURE)

    index: int
    code: str
    message: str


class _PartialAnswer(BaseModel):
    errors: list[InputFailure] = Field(default_factory=list, description="Only with on_error null.")


class EmbedAnswer(_PartialAnswer):
    """Answer to one `text`."""

    model_config = examples({"embedding": _HELLO}, {"embedding": _HELLO, "truncated": [0]})

    embedding: Vector | list[int] | Base64Vector | TextParts | None
    truncated: Truncated


class EmbedManyAnswer(_PartialAnswer):
    """Answer to `texts`."""

    model_config = examples({"embeddings": [ONE, TWO]}, {"embeddings": [ONE, None], "errors": [_FAILURE]})

    embeddings: list[Vector | list[int] | Base64Vector | TextParts | None]
    truncated: Truncated


class PredictAnswer(_PartialAnswer):
    """Answer to one `input`."""

    model_config = examples({"output": 49.0})

    output: Any = Field(description="Any JSON value that the function returns.")


class PredictManyAnswer(_PartialAnswer):
    """Answer to `inputs`."""

    model_config = examples(
        {"outputs": [49.0, 64.0]},
        {"outputs": [49.0, None], "errors": [_FAILURE | {"message": "Send a number."}]},
    )

    outputs: list[Any] = Field(description="Any JSON values that the function returns.")


class Embedding(BaseModel):
    """One vector in an answer of POST /v1/embeddings."""

    model_config = examples(
        {"object": "embedding", "index": 0, "embedding": ONE},
        {"object": "embedding", "index": 0, "embedding": "lUIMvSyhRrxW1w29"},
    )

    object: Literal["embedding"]
    index: int
    embedding: Vector | list[int] | Base64Vector | dict[OutputType, Vector | list[int] | Base64Vector] | None


class Usage(BaseModel):
    """The number of tokens that the model has read."""

    model_config = examples({"prompt_tokens": 6, "total_tokens": 6})

    prompt_tokens: int
    total_tokens: int
    truncated: Truncated


class EmbeddingsAnswer(_PartialAnswer):
    """Answer of POST /v1/embeddings."""

    model_config = examples(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": each} for i, each in enumerate((ONE, TWO))],
            "model": "minilm",
            "usage": {"prompt_tokens": 6, "total_tokens": 6},
        }
    )

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


EXAMPLE_JOB_ID = f"minilm.{EXAMPLE_ID}"
EXAMPLE_LINKS = {
    "id": EXAMPLE_JOB_ID,
    "status": "queued",
    "status_url": f"/jobs/{EXAMPLE_JOB_ID}",
    "result_url": f"/jobs/{EXAMPLE_JOB_ID}/result",
}


class AcceptedJob(JobLinks):
    """A job that was accepted."""

    model_config = examples({"request_id": EXAMPLE_ID} | EXAMPLE_LINKS)

    request_id: str


_HELLO_TOKEN = {"id": 7592, "text": "Hello", "special": False, "start": 0, "stop": 5}


class Token(BaseModel):
    """A token in an answer of POST /tokenize; `start` and `stop` are its place in the text."""

    model_config = examples(_HELLO_TOKEN)

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


Tokens = Annotated[
    list[list[Token]],
    Field(
        examples=[
            [
                [
                    {"id": 101, "text": "[CLS]", "special": True, "start": NULL, "stop": NULL},
                    _HELLO_TOKEN,
                    {"id": 1010, "text": ",", "special": False, "start": 5, "stop": 6},
                    {"id": 2088, "text": "world", "special": False, "start": 7, "stop": 12},
                    {"id": 102, "text": "[SEP]", "special": True, "start": NULL, "stop": NULL},
                ]
            ]
        ]
    ),
]


_ERROR = {"code": "queue_full", "message": _FULL, "request_id": EXAMPLE_ID}


class ErrorFields(BaseModel):
    """The fields of an error."""

    model_config = examples(_ERROR)

    code: str
    message: str
    request_id: str


class ErrorAnswer(BaseModel):
    """An error."""

    model_config = examples({"error": _ERROR})

    error: ErrorFields


_OPENAI_ERROR = {"message": _FULL, "type": "rate_limit_error", "param": None, "code": "queue_full"}


class OpenAIErrorFields(BaseModel):
    """The fields of an error in OpenAI's format."""

    model_config = examples(_OPENAI_ERROR)

    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorAnswer(BaseModel):
    """An error in OpenAI's format."""

    model_config = examples({"error": _OPENAI_ERROR})

    error: OpenAIErrorFields


class TeiErrorAnswer(BaseModel):
    """An error in TEI's format."""

    model_config = examples({"error": _FULL, "error_type": "Overloaded"})

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
