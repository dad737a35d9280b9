"""The dialect for user-defined functions: POST /predict with `input` or `inputs`, each any JSON value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field, ValidationError

from api.dialects.base import BaseDialect
from api.dialects.headers import parse_lane, resolve_timeout_ms
from api.dialects.native import RequestOptions
from api.dialects.parsing import check_inputs, invalid_body_error, parse_object, too_many_inputs_error
from api.dialects.request import MODEL_HEADER, PRIORITY_HEADER, InferenceRequest
from api.dialects.vectors import dump_json, encode_failures
from shared.errors import InvalidRequestError
from shared.messages import PREDICT, Values

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings import RequestLimits

NULL = orjson.Fragment(b"null")


class PredictBody(RequestOptions):
    """Body of POST /predict: `input` for one output, or `inputs` for several."""

    input: Any = Field(default=None, description="One input: any JSON value, also null.", examples=[7])
    inputs: list[Any] | None = Field(default=None, description="Several inputs.", json_schema_extra={"minItems": 1})


class Predict(BaseDialect):
    """The dialect of POST /predict: times and errors are reported as on /embed."""

    route = "/predict"
    body_model = PredictBody

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        fields = parse_object(body)
        single = "input" in fields
        values = _pop_inputs(fields, limits)
        try:
            options = RequestOptions.model_validate(fields)
        except ValidationError as error:
            raise invalid_body_error(error) from None
        inputs = tuple(encode_input(value) for value in values)
        partial = options.on_error == "null"
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(options.timeout_ms, headers, len(inputs), limits),
            parse_lane(options.priority or headers.get(PRIORITY_HEADER)),
            op=PREDICT,
            partial=partial,
            input_errors=check_inputs(inputs, limits, "input" if single else "inputs[{}]", partial=partial),
            single=single,
            model=options.model or headers.get(MODEL_HEADER),
        )

    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer with outputs."""
        outputs: list[orjson.Fragment] = []
        for part in result.parts:
            outputs += map(orjson.Fragment, part.values) if isinstance(part, Values) else [NULL] * part.n
        answer: dict[str, Any] = {"output": outputs[0]} if request.single else {"outputs": outputs}
        return dump_json(answer | {"errors": encode_failures(result.parts)} if request.partial else answer)


def _pop_inputs(fields: dict[str, Any], limits: RequestLimits) -> list[Any]:
    """Removes the inputs from the fields of a body and returns them. Raises InvalidRequestError, or TooLargeError."""
    if ("input" in fields) == ("inputs" in fields):
        raise InvalidRequestError('Send either {"input": ...} or {"inputs": [..., ...]}.')
    if "input" in fields:
        return [fields.pop("input")]
    values = fields.pop("inputs")
    if not isinstance(values, list) or not values:
        raise InvalidRequestError("inputs: send a list with at least one input.", param="inputs")
    if len(values) > limits.max_inputs:
        raise too_many_inputs_error(len(values), limits.max_inputs)
    return values


def encode_input(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Returns an input in the form that the engine takes. Raises InvalidRequestError."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # the parser allows deeper nesting than the encoder, and lone surrogates
        raise InvalidRequestError("An input is nested too deeply, or holds a lone surrogate.") from None
