"""The OpenAPI descriptions of the routes that rank texts. Pure."""

from __future__ import annotations

from api.dialects.cohere_operations import COHERE
from api.dialects.example_errors import COHERE_RERANK_ERRORS, RERANK_ERRORS, TEI_RERANK_ERRORS
from api.dialects.operation_headers import ANSWER_HEADERS, HEADERS, IDEMPOTENCY, MODEL_PARAMETER
from api.dialects.operations import (
    OPENAI,
    TAG_RERANKING,
    ErrorFormat,
    Errors,
    Operation,
    error_answers,
    request_of,
)
from api.dialects.ranking_models import (
    ClassifyAnswer,
    CohereRerankAnswer,
    RankedTexts,
    RerankAnswer,
    RerankErrorAnswer,
    ScoreAnswer,
    VoyageRerankAnswer,
)
from api.dialects.rerank import CohereRerankBody, Rerank, RerankBody, VoyageRerankBody
from api.dialects.response_models import TeiErrorAnswer
from api.dialects.schemas import Answers, body_schema
from api.dialects.tei_rerank import TeiRerank, TeiRerankBody
from api.dialects.vllm import ClassifyBody, ScoreBody

RERANK = ErrorFormat("Cohere, Jina, vLLM", Rerank(), RerankErrorAnswer)
TEI_RERANK = ErrorFormat("TEI", TeiRerank("/rerank"), TeiErrorAnswer)

_HEADERS = [each for each in HEADERS if each["name"] != "Prefer" and each is not IDEMPOTENCY]
_DOCUMENTS_BODY = body_schema(RerankBody, ["query", "documents"])
_VOYAGE_BODY = body_schema(VoyageRerankBody, ["query", "documents"])
_TEXTS_BODY = body_schema(TeiRerankBody)


def _answers(
    model: object, errors: Errors, description: str = "The index and the score of each text, the best first"
) -> Answers:
    return {
        200: {"description": description, "model": model, "headers": ANSWER_HEADERS},
        **error_answers(errors, {422: "A field is missing or invalid"}),
    }


_RERANK = Operation(
    "Rank texts by a query, for clients of Cohere, Jina, vLLM and Voyage, and with `texts` for TEI's",
    request_of({"anyOf": [_DOCUMENTS_BODY, _TEXTS_BODY, _VOYAGE_BODY]}, [*_HEADERS, MODEL_PARAMETER]),
    _answers(RerankAnswer | VoyageRerankAnswer | RankedTexts, {RERANK: RERANK_ERRORS, TEI_RERANK: TEI_RERANK_ERRORS}),
    TAG_RERANKING,
)

_VLLM_REQUEST = [*_HEADERS, MODEL_PARAMETER]
_SCORE = Operation(
    "Score pairs of texts, for clients of vLLM",
    request_of(body_schema(ScoreBody, ["text_1", "text_2"]), _VLLM_REQUEST),
    _answers(ScoreAnswer, {OPENAI: RERANK_ERRORS}, "The score of each pair, in their order"),
    TAG_RERANKING,
)
_CLASSIFY = Operation(
    "Classify texts, for clients of vLLM",
    request_of(body_schema(ClassifyBody, ["input"]), _VLLM_REQUEST),
    _answers(ClassifyAnswer, {OPENAI: RERANK_ERRORS}, "The scores of the labels of each text"),
    TAG_RERANKING,
)

RANKING_OPERATIONS = {
    "/rerank": _RERANK,
    "/v1/rerank": _RERANK,
    "/v2/rerank": Operation(
        "Rank texts by a query, for clients of Cohere's second version",
        request_of(body_schema(CohereRerankBody, ["query", "documents"]), _HEADERS),
        _answers(CohereRerankAnswer, {COHERE: COHERE_RERANK_ERRORS}),
        TAG_RERANKING,
    ),
    "/score": _SCORE,
    "/v1/score": _SCORE,
    "/classify": _CLASSIFY,
    "/v1/classify": _CLASSIFY,
}
"""By route."""
