"""The dialects of POST /rerank, /v1/rerank and /v2/rerank with `documents`: of Cohere, Jina, vLLM and Voyage. Pure.

One answer suits the clients of Cohere's first version, of Jina and of vLLM: each reads other fields of it. A document
in an answer is always an object, since LiteLLM reads its `text`. Cohere's second version has a separate path, answers
and errors. Voyage's client sends `truncation`, which no other client does, and reads a separate answer: one for all
would hold each score twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import orjson
from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, model_validator

from api.dialects.base import BaseDialect
from api.dialects.cohere import API_VERSION, LOWEST_PRIORITY, encode_cohere_error
from api.dialects.headers import PRIORITY, Priority, lane_of, resolve_timeout_ms
from api.dialects.openai import openai_error
from api.dialects.parsing import (
    check_served,
    invalid_body_error,
    one_of,
    parse_fields,
    parse_object,
    too_many_inputs_error,
)
from api.dialects.ranking import UNSERVED, PairFields, ScoreFields, check_pairs, rank
from api.dialects.request import MAX_MODEL, MAX_TIMEOUT_MS, MODEL_HEADER, InferenceRequest, Ranking
from api.dialects.tei_rerank import TeiRerank, is_tei_rerank
from api.dialects.truncation import with_truncated, with_warnings
from api.dialects.vectors import dump_json
from api.errors import status_of
from shared.errors import EmptyInputsError, InvalidRequestError, RedbatchError, RequestError
from shared.messages import SCORE, Options

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

VOYAGE_FIELDS = ("truncation", "top_k")
"""Fields of a body that only Voyage's API has; its client sends both, `top_k` also as null."""

UNIT_DOCUMENTS = 100
"""Documents of one of Cohere's search units."""

_DOCUMENT: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ]
}
_QUERY = _DOCUMENT | {"description": "What the documents are ranked by: a text, or an object with one."}
_LIST: dict[str, Any] = {"type": "array", "minItems": 1, "items": _DOCUMENT}
_DOCUMENTS = {"description": "The texts to rank, or objects with one each; or a single text."}


class RerankBody(PairFields, ScoreFields):
    """Body of POST /rerank and /v1/rerank with `documents`."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={
            "examples": [{"model": "my-reranker", "query": "a pet", "documents": ["a dog", "a car"], "top_n": 1}]
        },
    )

    query: Annotated[Any, WithJsonSchema(_QUERY)] = Field(default=None)
    documents: Annotated[Any, WithJsonSchema(_DOCUMENTS | {"anyOf": [_LIST, {"type": "string"}]})] = Field(default=None)
    model: str | None = Field(default=None, max_length=MAX_MODEL, description="A model that /v1/models lists.")
    top_n: int | None = Field(default=None, ge=0, description="Maximum number of results; 0, the default, for all.")
    return_documents: bool = Field(default=False, description="Whether the results have the documents.")
    priority: Priority | None = PRIORITY
    timeout_ms: int | None = Field(default=None, ge=1, le=MAX_TIMEOUT_MS, description="Maximum time for the answer.")

    @property
    def max_results(self) -> int | None:
        """The maximum number of results; None: all."""
        return self.top_n or None


class VoyageRerankBody(RerankBody):
    """Body of POST /rerank and /v1/rerank with `top_k` or `truncation`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "my-reranker",
                    "query": "a pet",
                    "documents": ["a dog", "a car"],
                    "top_k": 1,
                    "truncation": True,
                }
            ]
        }
    )

    top_k: int | None = Field(default=None, ge=1, description="Maximum number of results; all by default.")
    truncation: bool | None = Field(default=None, description="Voyage's name of truncate.")

    @model_validator(mode="after")
    def has_one_maximum(self) -> Self:
        """Raises InvalidRequestError: the body has both `top_n` and `top_k`."""
        if self.top_n is not None and self.top_k is not None:
            raise InvalidRequestError("Send top_n or top_k: one of them.", param="top_k")
        return self

    @property
    def max_results(self) -> int | None:
        """The maximum number of results; None: all."""
        return self.top_k or super().max_results

    @property
    def options(self) -> Options:
        """The options of the engine, without the query. Raises InvalidRequestError: two fields say different things."""
        options = super().options
        return options if one_of(self, "truncate", "truncation") else options._replace(truncate="no")


class CohereRerankBody(RerankBody):
    """Body of POST /v2/rerank."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "my-reranker", "query": "a pet", "documents": ["a dog", "a car"]}]}
    )

    model: str = Field(max_length=MAX_MODEL, description="A model that /v1/models lists.")
    documents: Annotated[
        Any, WithJsonSchema(_LIST | {"description": "The texts to rank, or objects with one each."})
    ] = Field(default=None)
    top_n: int | None = Field(default=None, ge=1, description="Maximum number of results; all by default.")
    priority: Annotated[int, Field(ge=0, le=LOWEST_PRIORITY)] | Literal["interactive", "bulk"] | None = PRIORITY


class Rerank(BaseDialect):
    """The dialect of a body with `documents`. A body with `texts` is in TEI's.

    Attributes:
        takes_one: whether `documents` may be a single text.
    """

    route = "/v1/rerank"
    body_model: type[RerankBody] = RerankBody
    body_setting = "max_v1_body_bytes"
    reports_model = True
    has_stamp = True
    becomes_jobs = False
    takes_one = True

    def for_body(self, body: bytes) -> BaseDialect:
        """Returns the dialect of a body. Raises InvalidRequestError: the body mixes two."""
        if is_tei_rerank(body, "documents"):
            return TeiRerank(self.route)
        return VoyageRerank(self.route) if _is_voyage(body) else self

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        check_served(values, UNSERVED)
        query = _text_of(values.pop("query", None), "query")
        documents = values.pop("documents", None)
        if self.takes_one and isinstance(documents, str):
            documents = [documents]
        documents = _documents_of(documents, limits.max_inputs)
        if MODEL_HEADER in headers:
            values.setdefault("model", headers[MODEL_HEADER])
        try:
            fields = self.body_model.model_validate(values)
        except ValidationError as error:
            raise invalid_body_error(error, self.body_model) from None
        if not query:
            raise InvalidRequestError("query: it is empty.", param="query")
        check_pairs(query, documents, limits, "documents")
        return InferenceRequest(
            documents,
            resolve_timeout_ms(fields.timeout_ms, headers, len(documents), limits),
            lane_of(fields.priority, headers),
            fields.options._replace(query=query),
            SCORE,
            model=fields.model,
            ranking=Ranking(fields.max_results, fields.return_documents, fields.raw),
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: the index and the score of each document, the best first."""
        tokens = result.tokens
        return dump_json(
            {
                "id": request.stamp.request_id,
                "object": "list",
                "model": request.model,
                "usage": with_truncated({"prompt_tokens": tokens, "total_tokens": tokens}, result),
                "results": _results(request, result),
                "meta": {
                    "api_version": {"version": "2"},
                    "billed_units": {"search_units": num_units(len(request.inputs)), "total_tokens": tokens},
                    "tokens": {"input_tokens": tokens},
                },
            }
        )

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:  # noqa: ARG002 - in a header only
        """Returns status and body of an answer with an error: as OpenAI's clients read it, and as a text."""
        fields = {"error": openai_error(error), "message": error.message, "detail": error.message}
        return status_of(error), orjson.dumps(fields)


class VoyageRerank(Rerank):
    """The dialect of Voyage's API."""

    body_model = VoyageRerankBody

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: the index and the score of each document, the best first."""
        with_texts = request.ranking.with_texts
        data = [
            {"index": index, "relevance_score": score} | ({"document": request.inputs[index]} if with_texts else {})
            for index, score in rank(result, request.ranking)
        ]
        usage = with_truncated({"total_tokens": result.tokens}, result)
        return dump_json({"object": "list", "data": data, "model": request.model, "usage": usage})


class CohereRerank(Rerank):
    """The dialect of the second version of Cohere's API."""

    route = "/v2/rerank"
    body_model = CohereRerankBody
    takes_one = False

    def for_body(self, body: bytes) -> BaseDialect:  # noqa: ARG002 - this path has one dialect
        """Returns this dialect."""
        return self

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: the index and the score of each document, the best first."""
        meta = {
            "api_version": API_VERSION,
            "billed_units": {"search_units": num_units(len(request.inputs))},
            "tokens": {"input_tokens": result.tokens},
        }
        results = _results(request, result)
        return dump_json({"id": request.stamp.request_id, "results": results, "meta": with_warnings(meta, result)})

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
        return encode_cohere_error(error, request_id)


def _is_voyage(body: bytes) -> bool:
    """Whether a body has a field that only Voyage's API has. Most bodies need not be parsed: see `is_tei_rerank`."""
    if not any(f'"{name}"'.encode() in body for name in VOYAGE_FIELDS):
        return False
    try:
        fields = parse_object(body)
    except RequestError:  # which parsing the body raises again
        return False
    return any(name in fields for name in VOYAGE_FIELDS)


def _results(request: InferenceRequest, result: InferenceResult) -> list[dict[str, Any]]:
    with_texts = request.ranking.with_texts
    return [
        {"index": index, "relevance_score": score}
        | ({"document": {"text": request.inputs[index]}} if with_texts else {})
        for index, score in rank(result, request.ranking)
    ]


def num_units(num_documents: int) -> int:
    """Returns how many of Cohere's search units a request is."""
    return -(-num_documents // UNIT_DOCUMENTS)


def _documents_of(value: object, max_inputs: int) -> tuple[str, ...]:
    """Returns the texts of documents. Raises InvalidRequestError: there are none, too many, or one is no text."""
    if value == []:
        raise EmptyInputsError("invalid request: list of documents must not be empty", param="documents")
    if not isinstance(value, list):
        message = "documents: send a list of texts, or of objects with a text; TEI's clients send texts instead."
        raise InvalidRequestError(message, param="documents")
    if len(value) > max_inputs:  # as OpenAI's and Cohere's APIs do, with 400
        raise InvalidRequestError(f"documents: {too_many_inputs_error(len(value), max_inputs).message}")
    return tuple([_text_of(each, f"documents[{index}]") for index, each in enumerate(value)])


def _text_of(value: object, name: str) -> str:
    """Returns the text that a field is or holds. Raises InvalidRequestError: it has none."""
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        message = f'{name}: send a text, or {{"text": "..."}}.'
        raise InvalidRequestError(message, param=name.partition("[")[0])
    return text
