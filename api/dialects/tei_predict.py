"""The dialect of POST /predict for a classifier, as Text Embeddings Inference (TEI) has it. Pure.

A flat list of two texts is one pair, not two inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from api.dialects.classes import class_scores
from api.dialects.parsing import parse_fields
from api.dialects.ranking import check_pairs
from api.dialects.request import InferenceRequest, Ranking
from api.dialects.tei_base import TruncationFields, tei_request, validate_body
from api.dialects.tei_rerank import TeiScoring
from api.dialects.vectors import dump_json
from shared.errors import EmptyInputsError, InvalidRequestError, TooLargeError
from shared.messages import CLASSIFY, Options

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

Pair = tuple[str | None, str]
"""A text, with the text before it if it is a pair."""

_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}
_INPUTS = {
    "description": "A text, a list with one text, or with the two texts of one pair; or a list of such lists.",
    "anyOf": [{"type": "string"}, _PAIR, {"type": "array", "items": _PAIR, "minItems": 1}],
}
_EXPECTED = "inputs: send a text, a list of one text or of the two texts of a pair, or a list of such lists."


class TeiPredictBody(TruncationFields):
    """Body of POST /predict for a classifier."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"inputs": "I like it."}, {"inputs": [["a"], ["b", "c"]]}]}
    )

    inputs: Annotated[Any, WithJsonSchema(_INPUTS)] = Field(default=None)
    raw_scores: bool = Field(default=False, description="Whether to return logits in place of probabilities.")


class TeiPredict(TeiScoring):
    """The dialect of POST /predict, if the model is a classifier or reranker.

    Attributes:
        has_model: whether a body may name the model, as those of functions may, which have the same route.
    """

    route = "/predict"
    has_model = True
    body_model = TeiPredictBody
    becomes_jobs = False

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        pairs, single = _pairs_of(values.pop("inputs", None), limits.max_inputs)
        fields = validate_body(TeiPredictBody, values)
        if any(not first and not second for first, second in pairs):
            raise EmptyInputsError("Input validation error: `inputs` cannot be empty", param="inputs")
        for name, texts in (
            ("inputs", [second for _, second in pairs]),
            ("inputs", [first or "" for first, _ in pairs]),
        ):
            check_pairs("", texts, limits, name)
        options = Options(fields.prompt_name, truncate=fields.truncate_side)
        request = tei_request([second for _, second in pairs], CLASSIFY, options, headers, limits)
        if self.has_model and isinstance(model := values.get("model"), str):  # it has chosen this dialect
            request = request._replace(model=model)
        queries = tuple(first for first, _ in pairs)
        has_pairs = any(each is not None for each in queries)
        return request._replace(
            queries=queries if has_pairs else (), single=single, ranking=Ranking(raw=fields.raw_scores)
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: for each input all labels, the one with the highest score first."""
        found = class_scores(result, request.labels, raw=request.ranking.raw)
        names = request.labels.names
        answers = [
            [{"score": row[index], "label": names[index]} for index in order.tolist()]
            for row, order in zip(found.scores, found.order, strict=True)
        ]
        return dump_json(answers[0] if request.single else answers)


def _pairs_of(value: object, max_inputs: int) -> tuple[list[Pair], bool]:
    """Returns the inputs, and whether they are a single one. Raises RequestError: they are invalid, or too many."""
    if isinstance(value, str):
        return [(None, value)], True
    if not isinstance(value, list) or not value:
        raise InvalidRequestError(_EXPECTED, param="inputs")
    if isinstance(value[0], str):
        return [_pair_of(value)], True
    if len(value) > max_inputs:
        raise TooLargeError(f"batch size {len(value)} > maximum allowed batch size {max_inputs}")
    return [_pair_of(each) for each in value], False


def _pair_of(value: object) -> Pair:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        match value:
            case [text]:
                return None, text
            case [first, second]:
                return first, second
    raise InvalidRequestError(_EXPECTED, param="inputs")
