"""The dialect of POST /rerank as Text Embeddings Inference (TEI) has it: a body with `texts`, and an array. Pure.

`top_n`, which LiteLLM sends, limits the results; TEI itself ignores the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from api.dialects.parsing import parse_fields
from api.dialects.ranking import NOT_A_NUMBER, check_pairs, rank
from api.dialects.request import InferenceRequest, Ranking
from api.dialects.tei_base import TeiDialect, TruncationFields, tei_request, validate_body
from api.dialects.vectors import dump_json
from shared.errors import (
    EmptyInputsError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    RedbatchError,
    RequestError,
    TooLargeError,
)
from shared.messages import SCORE, Options

if TYPE_CHECKING:
    from api.dialects.base import DeviceInfo
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits


class TeiRerankBody(TruncationFields):
    """Body of POST /rerank in TEI's dialect."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "a pet", "texts": ["a dog", "a car"], "return_text": True}]}
    )

    query: str
    texts: list[str] = Field(fail_fast=True, json_schema_extra={"minItems": 1})
    raw_scores: bool = Field(default=False, description="Whether to return logits in place of scores from 0 to 1.")
    return_text: bool = Field(default=False, description="Whether the results have the texts.")
    top_n: int | None = Field(default=None, ge=1, description="Maximum number of results; all by default.")


class TeiScoring(TeiDialect):
    """The headers and errors of TEI's routes that score pairs of texts."""

    def headers(
        self, workers: DeviceInfo, request: InferenceRequest, result: InferenceResult, took_s: float
    ) -> dict[str, str]:
        """Returns TEI's measures, in which the query counts with each text."""
        headers = super().headers(workers, request, result, took_s)
        num_chars = sum(map(len, request.inputs)) + _query_chars(request)
        return headers | {"x-compute-characters": str(num_chars)}

    def message_of(self, error: RedbatchError) -> str:
        """Returns the message of an error in TEI's words, where it has some."""
        if isinstance(error, InvalidRequestError) and error.too_long is not None:
            tokens, maximum = error.too_long
            return (
                f"Input validation error: `inputs` must have less than {maximum} tokens. Given: {tokens}. Allow "
                "truncate, or shorten the texts."
            )
        if isinstance(error, OverloadedError):
            return f"Model is overloaded. {error.message}"
        if isinstance(error, ModelError) and error.message != NOT_A_NUMBER:
            return f"Backend error: {error.message}"
        return super().message_of(error)


def _query_chars(request: InferenceRequest) -> int:
    """Returns the characters of the first texts of all pairs."""
    if request.queries:
        return sum(len(each or "") for each in request.queries)
    return len(request.options.query or "") * len(request.inputs)


class TeiRerank(TeiScoring):
    """The dialect of a body with `query` and `texts`."""

    body_model = TeiRerankBody
    becomes_jobs = False

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        texts = values.get("texts")
        if texts == []:
            raise EmptyInputsError("`texts` cannot be empty", param="texts")
        if isinstance(texts, list) and len(texts) > limits.max_inputs:
            raise TooLargeError(f"batch size {len(texts)} > maximum allowed batch size {limits.max_inputs}")
        fields = validate_body(TeiRerankBody, values)
        if not fields.query and "" in fields.texts:
            raise EmptyInputsError("Input validation error: `inputs` cannot be empty", param="query")
        check_pairs(fields.query, fields.texts, limits, "texts")
        options = Options(fields.prompt_name, truncate=fields.truncate_side, query=fields.query)
        request = tei_request(fields.texts, SCORE, options, headers, limits)
        return request._replace(ranking=Ranking(fields.top_n, fields.return_text, fields.raw_scores))

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: the index and the score of each text, the best first."""
        answer: list[dict[str, Any]] = []
        for index, score in rank(result, request.ranking):
            text = {"text": request.inputs[index]} if request.ranking.with_texts else {}
            answer.append({"index": index, **text, "score": score})
        return dump_json(answer)


def is_tei_rerank(body: bytes, other_field: str) -> bool:
    """Whether a body has `texts`, and not another field that names the inputs of another dialect.

    Most bodies need not be parsed: as part of a text, the name of a field has its quotation marks escaped.

    Raises:
        InvalidRequestError: it has both.
    """
    if b'"texts"' not in body:
        return False
    if f'"{other_field}"'.encode() not in body:
        return True
    try:
        fields = parse_fields(body)
    except RequestError:  # which parsing the body raises again
        return False
    if "texts" in fields and other_field in fields:
        raise InvalidRequestError(f"Send texts or {other_field}: one of them.", param="texts")
    return "texts" in fields
