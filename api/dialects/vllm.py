"""The dialects of POST /score and POST /classify, as vLLM has them: scores of pairs, and of labels. Pure.

Errors have OpenAI's format, as those of vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema

from api.dialects.classes import class_scores
from api.dialects.headers import PRIORITY, Priority, lane_of, resolve_timeout_ms
from api.dialects.openai import OpenAI
from api.dialects.parsing import (
    INPUTS,
    check_inputs,
    check_served,
    invalid_body_error,
    parse_fields,
    parse_inputs,
    parse_openai_fields,
    too_many_inputs_error,
)
from api.dialects.ranking import (
    UNSERVED,
    PairFields,
    ScoreFields,
    check_pairs,
    scores_of,
)
from api.dialects.request import MAX_MODEL, MAX_TIMEOUT_MS, MODEL_HEADER, InferenceRequest, Ranking
from api.dialects.truncation import CutFields, with_truncated
from api.dialects.vectors import dump_json
from shared.errors import EmptyInputsError, InvalidRequestError, TooLargeError
from shared.messages import CLASSIFY, SCORE

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

F = TypeVar("F", bound="VllmFields")
PAIR_FIELDS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""The names that clients use for the first and the second texts of pairs."""

_TEXTS: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
}
_FIRST = _TEXTS | {"description": "The first text of all pairs, or that of each; also as queries, data_1."}
_SECOND = _TEXTS | {"description": "The second text of each pair; also as documents, items, data_2."}


class VllmFields(CutFields, ScoreFields):
    """The fields that vLLM's routes have in common."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = Field(default=None, max_length=MAX_MODEL, description="A model that /v1/models lists.")
    priority: Priority | None = PRIORITY
    timeout_ms: int | None = Field(default=None, ge=1, le=MAX_TIMEOUT_MS, description="Maximum time for the answer.")


class ScoreBody(VllmFields, PairFields):
    """Body of POST /score."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text_1": "a pet", "text_2": ["a dog", "a car"]}]})

    text_1: Annotated[Any, WithJsonSchema(_FIRST)] = Field(default=None)
    text_2: Annotated[Any, WithJsonSchema(_SECOND)] = Field(default=None)


class ClassifyBody(VllmFields):
    """Body of POST /classify."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["I like it.", "I do not."]}]})

    input: Annotated[Any, WithJsonSchema(INPUTS)] = Field(default=None)


class _Vllm(OpenAI):
    """What vLLM's routes have in common."""

    has_stamp = True
    becomes_jobs = False

    def _head(self, request: InferenceRequest, result: InferenceResult) -> dict[str, Any]:
        """Returns the fields of an answer beside its data."""
        tokens = result.tokens
        usage = {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        }
        return {
            "id": request.stamp.request_id,
            "object": "list",
            "created": request.stamp.created_s,
            "model": request.model,
            "usage": with_truncated(usage, result),
        }


class Score(_Vllm):
    """The dialect of POST /score."""

    route = "/score"
    body_model = ScoreBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_fields(body)
        firsts, seconds = _pairs_of(values, limits.max_inputs)
        fields = _validate(ScoreBody, values, headers)
        for name, texts in (("text_1", firsts), ("text_2", seconds)):
            check_pairs("", texts, limits, name)
        request = _request(fields, seconds, SCORE, headers, limits)
        if len(firsts) == 1:
            return request._replace(options=request.options._replace(query=firsts[0]))
        return request._replace(queries=firsts)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: the score of each pair, in their order."""
        scores = scores_of(result, raw=request.ranking.raw)
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
        return dump_json(self._head(request, result) | {"data": data})


class Classify(_Vllm):
    """The dialect of POST /classify."""

    route = "/classify"
    body_model = ClassifyBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        values = parse_openai_fields(body)
        try:
            inputs = parse_inputs(values.pop("input", None), limits.max_inputs, "input")
        except TooLargeError as error:  # too many inputs, for which OpenAI answers 400
            raise InvalidRequestError(f"input: {error.message}", param="input") from None
        check_inputs(inputs, limits, "input[{}]")
        return _request(_validate(ClassifyBody, values, headers), inputs, CLASSIFY, headers, limits)

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer: for each input the label with the highest score, and the scores of all."""
        found = class_scores(result, request.labels, raw=request.ranking.raw)
        names = request.labels.names
        data = [
            {"index": index, "label": names[int(order[0])], "probs": row, "num_classes": len(names)}
            for index, (row, order) in enumerate(zip(found.scores, found.order, strict=True))
        ]
        return dump_json(self._head(request, result) | {"data": data})


def _validate(model: type[F], values: dict[str, Any], headers: Mapping[str, str]) -> F:
    check_served(values, UNSERVED)
    if MODEL_HEADER in headers:
        values.setdefault("model", headers[MODEL_HEADER])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_body_error(error, model) from None


def _request(
    fields: VllmFields, inputs: tuple[str | bytes, ...], op: str, headers: Mapping[str, str], limits: RequestLimits
) -> InferenceRequest:
    return InferenceRequest(
        inputs,
        resolve_timeout_ms(fields.timeout_ms, headers, len(inputs), limits),
        lane_of(fields.priority, headers),
        fields.options,
        op,
        model=fields.model,
        ranking=Ranking(raw=fields.raw),
    )


def _pairs_of(values: dict[str, Any], max_inputs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes the texts of pairs from the fields of a body; returns the first ones, or one, and the second ones.

    Raises:
        InvalidRequestError: a field is missing or invalid, or their lengths do not match.
    """
    given = next((names for names in PAIR_FIELDS if names[0] in values and names[1] in values), None)
    if given is None:
        names = ", or ".join(" and ".join(each) for each in PAIR_FIELDS)
        raise InvalidRequestError(f"Send the texts of pairs in {names}.", param="text_1")
    firsts, seconds = (_texts_of(values.pop(name), name) for name in given)
    for texts, name in ((firsts, "text"), (seconds, "text_pair")):
        if not texts:
            raise EmptyInputsError(f"At least one {name} element must be given", param=given[name != "text"])
    if len(firsts) not in (1, len(seconds)):
        raise InvalidRequestError("Input lengths must be either 1:1, 1:N or N:N", param=given[0])
    if len(seconds) > max_inputs:
        raise InvalidRequestError(f"{given[1]}: {too_many_inputs_error(len(seconds), max_inputs).message}")
    return firsts, seconds


def _texts_of(value: object, name: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise InvalidRequestError(f"{name}: send a text or a list of texts.", param=name)
    return tuple(texts)
