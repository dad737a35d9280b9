"""The answers of the routes that rank texts as pydantic models, for OpenAPI only. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from api.dialects.response_models import EXAMPLE_ID, OpenAIErrorFields, Truncated, Usage, examples

_FULL = "The queue is full: try again in 2 s."


class RankedText(BaseModel):
    """A text in an answer for TEI's clients: its index in the request, and its score."""

    model_config = examples({"index": 0, "text": "a dog", "score": 0.9981})

    index: int
    text: str = Field(default="", description="Only with return_text.")
    score: float


RankedTexts = Annotated[
    list[RankedText], Field(examples=[[{"index": 0, "score": 0.9981}, {"index": 1, "score": 0.0024}]])
]


class DocumentText(BaseModel):
    """A document in an answer."""

    model_config = examples({"text": "a dog"})

    text: str


class RankedDocument(BaseModel):
    """A document in an answer: its index in the request, and its score."""

    model_config = examples({"index": 0, "relevance_score": 0.9981, "document": {"text": "a dog"}})

    index: int
    relevance_score: float
    document: DocumentText | None = Field(default=None, description="Only with return_documents.")


class ApiVersion(BaseModel):
    """The version of Cohere's API that the answer follows."""

    model_config = examples({"version": "2"})

    version: str
    is_experimental: bool = False


class BilledUnits(BaseModel):
    """The size of the request: a search unit is up to 100 documents."""

    model_config = examples({"search_units": 1})

    search_units: int
    total_tokens: int = Field(default=0, description="Not in answers of /v2/rerank.")


class MetaTokens(BaseModel):
    """The tokens that the model has read: of the query and the document of each pair."""

    model_config = examples({"input_tokens": 14})

    input_tokens: int


class Meta(BaseModel):
    """The size of the request, as Cohere's clients read it."""

    model_config = examples(
        {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "tokens": {"input_tokens": 14}}
    )

    api_version: ApiVersion
    billed_units: BilledUnits
    tokens: MetaTokens
    warnings: list[str] = Field(
        default_factory=list, description="Which documents were truncated, of /v2/rerank; only if there are any."
    )


_RESULTS = [{"index": 0, "relevance_score": 0.9981}, {"index": 1, "relevance_score": 0.0024}]


class CohereRerankAnswer(BaseModel):
    """Answer of POST /v2/rerank."""

    model_config = examples(
        {
            "id": EXAMPLE_ID,
            "results": _RESULTS,
            "meta": {
                "api_version": {"version": "2", "is_experimental": False},
                "billed_units": {"search_units": 1},
                "tokens": {"input_tokens": 14},
            },
        }
    )

    id: str
    results: list[RankedDocument]
    meta: Meta


class RerankAnswer(CohereRerankAnswer):
    """Answer of POST /v1/rerank, and of POST /rerank with `documents`."""

    model_config = examples(
        {
            "id": EXAMPLE_ID,
            "object": "list",
            "model": "my-reranker",
            "usage": {"prompt_tokens": 14, "total_tokens": 14},
            "results": _RESULTS,
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"search_units": 1, "total_tokens": 14},
                "tokens": {"input_tokens": 14},
            },
        }
    )

    object: Literal["list"]
    model: str
    usage: Usage


class VoyageUsage(BaseModel):
    """The number of tokens that the model has read."""

    model_config = examples({"total_tokens": 14})

    total_tokens: int
    truncated: Truncated


class VoyageRankedDocument(BaseModel):
    """A document in an answer for Voyage's clients: its index in the request, and its score."""

    model_config = examples({"index": 0, "relevance_score": 0.9981, "document": "a dog"})

    index: int
    relevance_score: float
    document: str = Field(default="", description="Only with return_documents.")


class VoyageRerankAnswer(BaseModel):
    """Answer of POST /rerank and /v1/rerank to a body with `top_k` or `truncation`."""

    model_config = examples(
        {"object": "list", "data": _RESULTS[:1], "model": "my-reranker", "usage": {"total_tokens": 14}}
    )

    object: Literal["list"]
    data: list[VoyageRankedDocument]
    model: str
    usage: VoyageUsage


class RerankErrorAnswer(BaseModel):
    """An error of POST /v1/rerank, and of POST /rerank with `documents`: for OpenAI's, Cohere's and Jina's clients."""

    model_config = examples(
        {
            "error": {"message": _FULL, "type": "rate_limit_error", "param": None, "code": "queue_full"},
            "message": _FULL,
            "detail": _FULL,
        }
    )

    error: OpenAIErrorFields
    message: str
    detail: str


class VllmUsage(Usage):
    """The number of tokens that the model has read."""

    model_config = examples(
        {"prompt_tokens": 14, "total_tokens": 14, "completion_tokens": 0, "prompt_tokens_details": None}
    )

    completion_tokens: int
    prompt_tokens_details: None


_VLLM = {
    "id": EXAMPLE_ID,
    "object": "list",
    "created": 1_795_573_889,
    "model": "my-reranker",
    "usage": {"prompt_tokens": 14, "total_tokens": 14, "completion_tokens": 0, "prompt_tokens_details": None},
}


class _VllmAnswer(BaseModel):
    id: str
    object: Literal["list"]
    created: int
    model: str
    usage: VllmUsage


class PairScore(BaseModel):
    """The score of a pair."""

    model_config = examples({"index": 0, "object": "score", "score": 0.9981})

    index: int
    object: Literal["score"]
    score: float


class ScoreAnswer(_VllmAnswer):
    """Answer of POST /score."""

    model_config = examples(
        _VLLM | {"data": [{"index": i, "object": "score", "score": each} for i, each in enumerate((0.9981, 0.0024))]}
    )

    data: list[PairScore]


class Classification(BaseModel):
    """The label of an input with the highest score, and the scores of all labels."""

    model_config = examples({"index": 0, "label": "positive", "probs": [0.02, 0.98], "num_classes": 2})

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyAnswer(_VllmAnswer):
    """Answer of POST /classify."""

    model_config = examples(
        _VLLM
        | {
            "model": "my-classifier",
            "data": [{"index": 0, "label": "positive", "probs": [0.02, 0.98], "num_classes": 2}],
        }
    )

    data: list[Classification]


class LabelScore(BaseModel):
    """A label and its score."""

    model_config = examples({"score": 0.98, "label": "positive"})

    score: float
    label: str


LabelScores = Annotated[
    list[LabelScore] | list[list[LabelScore]],
    Field(examples=[[{"score": 0.98, "label": "positive"}, {"score": 0.02, "label": "negative"}]]),
]
