"""The dialect for user-defined functions: POST /predict with `input` or `inputs`: any JSON values, or binary. Pure."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ConfigDict, Field, ValidationError

from api.dialects.base import BaseDialect
from api.dialects.headers import lane_of, media_type_of, resolve_timeout_ms
from api.dialects.long_integers import MARK
from api.dialects.native import RequestOptions
from api.dialects.parsing import invalid_body_error, parse_object, too_many_inputs_error
from api.dialects.request import MODEL_HEADER, InferenceRequest
from api.dialects.strict_body import unknown_field_error
from api.dialects.tei_predict import TeiPredict
from api.dialects.text_options import TEXT_OPTIONS, option_error
from api.dialects.vectors import dump_json, encode_failures
from shared.codec import encode_binary, input_size
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import BYTES, CLASSIFY, NPY, PREDICT, Input, Values

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

NULL = orjson.Fragment(b"null")

MAX_NESTING = 254
"""Levels to which orjson encodes; it parses deeper documents."""

BINARY_KEYS = {"base64": BYTES, "npy": NPY}
"""An object with one of these keys and no other is a binary input, in base64; by the kind of the input."""

BINARY_TYPES = {"application/octet-stream": BYTES, "application/x-npy": NPY}
"""A body of one of these media types is one binary input."""


class PredictBody(RequestOptions):
    """Body of POST /predict: `input` for one output, or `inputs` for several."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": 7}, {"inputs": [7, 8]}]})

    input: Any = Field(
        default=None,
        description='One input: any JSON value, also null. {"base64": "..."}, without other keys, is bytes, and '
        '{"npy": "..."} an array in .npy format, in base64 too.',
        examples=[7],
    )
    inputs: list[Any] | None = Field(default=None, description="Several inputs.", json_schema_extra={"minItems": 1})


class Predict(BaseDialect):
    """The dialect of POST /predict: times and errors are reported as on /embed."""

    route = "/predict"
    body_model = PredictBody
    strict_query = True
    body_setting = "max_predict_body_bytes"
    binary_types = frozenset(BINARY_TYPES)

    def for_ops(self, body: bytes) -> Sequence[tuple[str, BaseDialect]]:
        """Returns TEI's dialect of a body with `inputs`, for classifiers; `input` is for functions only."""
        return [(CLASSIFY, TeiPredict(self.route))] if b'"inputs"' in body else []

    def model_of(self, body: bytes, headers: Mapping[str, str]) -> str | None:
        """Returns the model that a request names."""
        model = parse_object(body).get("model") if b'"model"' in body else None
        return model if isinstance(model, str) else headers.get(MODEL_HEADER)

    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; raises as `BaseDialect.parse` does."""
        kind = BINARY_TYPES.get(media_type_of(headers))
        if kind is not None:
            return _parse_binary(kind, body, headers, limits)
        fields = parse_object(body, exact=True)
        single = "input" in fields
        values = _pop_inputs(fields, limits)
        try:
            options = RequestOptions.model_validate(fields)
        except ValidationError as error:
            raise invalid_body_error(error, RequestOptions) from None
        for name in options.model_extra or ():
            is_text_option = name in TEXT_OPTIONS
            raise option_error(name, PREDICT) if is_text_option else unknown_field_error(name, PredictBody.model_fields)
        partial = options.on_error == "null"
        inputs, errors = _encode_inputs(values, limits, "input" if single else "inputs[{}]", partial=partial)
        return InferenceRequest(
            inputs,
            resolve_timeout_ms(options.timeout_ms, headers, len(inputs), limits),
            lane_of(options.priority, headers),
            op=PREDICT,
            partial=partial,
            input_errors=errors,
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
    if isinstance(values, str):  # as clients of TEI send a text to a classifier
        raise InvalidRequestError(
            'inputs: send a list, or {"input": ...}: the model of this queue is no classifier. Vectors of texts are at '
            "POST /embed.",
            param="inputs",
        )
    if not isinstance(values, list) or not values:
        raise InvalidRequestError("inputs: send a list with at least one input.", param="inputs")
    if len(values) > limits.max_inputs:
        raise too_many_inputs_error(len(values), limits.max_inputs)
    return values


def _parse_binary(kind: str, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
    """Returns the request whose one input is the body. Raises as `BaseDialect.parse` does."""
    value = encode_binary(kind, body)
    if (error := _size_error(0, value, limits)) is not None:
        raise error
    return InferenceRequest(
        (value,),
        resolve_timeout_ms(None, headers, 1, limits),
        lane_of(None, headers),
        op=PREDICT,
        single=True,
        model=headers.get(MODEL_HEADER),
    )


def _encode_inputs(
    values: list[Any], limits: RequestLimits, name: str, *, partial: bool
) -> tuple[tuple[Input, ...], dict[int, RequestError]]:
    """Returns the inputs in the form that the engine takes, and the errors of invalid ones by index, if `partial`.

    `name` is that of the field, with {} for the index. Raises RequestError: an input is invalid, and not `partial`.
    """
    inputs: list[Input] = []
    errors: dict[int, RequestError] = {}
    for index, value in enumerate(values):
        error: RequestError | None
        try:
            inputs.append(encode_input(value, name.format(index)))
            error = _size_error(index, inputs[-1], limits)
        except InvalidRequestError as invalid:
            inputs.append("null")  # it keeps the place of the input
            error = invalid
        if error is not None:
            if not partial:
                raise error
            errors[index] = error
    return tuple(inputs), errors


def encode_input(value: Any, name: str) -> Input:  # noqa: ANN401 - any JSON value
    """Returns an input of an exact document in the form that the engine takes. Raises InvalidRequestError."""
    if type(value) is dict and len(value) == 1:
        key, content = next(iter(value.items()))
        if key in BINARY_KEYS:
            return encode_binary(BINARY_KEYS[key], _decode_base64(content, f"{name}.{key}"))
    try:
        encoded = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise InvalidRequestError(f"{name}: it is nested more than {MAX_NESTING} levels deep.", param=name) from None
    if MARK in encoded:
        raise InvalidRequestError(
            f"{name}: it has an integer outside -2^63 to 2^64 - 1: send that as a text.", param=name
        )
    return encoded


def _decode_base64(content: object, name: str) -> bytes:
    """Returns the bytes that a field `name` holds in base64. Raises InvalidRequestError."""
    if isinstance(content, str):
        try:
            return binascii.a2b_base64(content, strict_mode=True)
        except ValueError:  # binascii.Error is one; so is the error for a character that is not ASCII
            pass
    raise InvalidRequestError(
        f"{name}: send a text in base64, with the characters A-Z a-z 0-9 + /, padded with =, without line breaks.",
        param=name,
    )


def _size_error(index: int, value: Input, limits: RequestLimits) -> TooLargeError | None:
    """Returns the error for an input that is too long, or None."""
    size = input_size(value)
    if size <= limits.max_input_bytes:
        return None
    return TooLargeError(
        f"Input {index} has {size} bytes, over the limit of {limits.max_input_bytes}: send less, or raise the setting "
        "max_input_bytes of the gateway."
    )
