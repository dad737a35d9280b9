"""The words for a function of the user's own: POST /predict with `input` or `inputs`, each whatever JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field, ValidationError

from api.dialects.vectors import dump, errors_of
from api.dialects.request import (
    MODEL_HEADER,
    PRIORITY_HEADER,
    Asked,
    check_inputs,
    lane_of,
    malformed,
    timeout_of,
    too_many,
)
from api.dialects.native import How, Native
from api.dialects.parsing import object_of
from shared.errors import InvalidRequest
from shared.messages import PREDICT, Values

if TYPE_CHECKING:
    from api.dispatch.dispatcher import Answered
    from api.http.handler import Dialect
    from api.settings import GatewaySettings

NULL = orjson.Fragment(b"null")


class PredictBody(How):
    """Body of POST /predict: `input` for one output, or `inputs` for many."""

    input: Any = Field(default=None, description="One input: any JSON, null as well.", examples=[7])
    inputs: list[Any] | None = Field(default=None, description="Some inputs.", json_schema_extra={"minItems": 1})


class Predict(Native):
    """The dialect of POST /predict: told of times and errors as POST /embed is."""

    route = "/predict"

    def for_body(self, body: bytes) -> Dialect:  # noqa: ARG002 - it has no other words
        """Returns whose words a body is in."""
        return self

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> Asked:
        """Returns what a body asks for, and where it is silent, the headers.

        Raises:
            InvalidRequest: it is malformed, or asks for nothing.
            TooLarge: it asks for too much.
        """
        given = object_of(body)
        single = "input" in given
        values = _values(given, settings)
        try:
            how = How.model_validate(given)
        except ValidationError as error:
            raise malformed(error) from None
        inputs = tuple(_told(each) for each in values)
        partial = how.on_error == "null"
        return Asked(
            inputs,
            timeout_of(how.timeout_ms, headers, len(inputs), settings),
            lane_of(how.priority or headers.get(PRIORITY_HEADER)),
            op=PREDICT,
            partial=partial,
            refused=check_inputs(inputs, settings, "input" if single else "inputs[{}]", partial=partial),
            single=single,
            model=how.model or headers.get(MODEL_HEADER),
        )

    def answer(self, asked: Asked, answered: Answered) -> bytes:
        """Returns the body of an answer with outputs."""
        outputs: list[orjson.Fragment] = []
        for part in answered.parts:
            outputs += map(orjson.Fragment, part.values) if isinstance(part, Values) else [NULL] * part.n
        told: dict[str, Any] = {"output": outputs[0]} if asked.single else {"outputs": outputs}
        return dump(told | {"errors": errors_of(answered.parts)} if asked.partial else told)


def _values(given: dict[str, Any], settings: GatewaySettings) -> list[Any]:
    """Takes the inputs out of a body. Raises InvalidRequest, or TooLarge."""
    if ("input" in given) == ("inputs" in given):
        raise InvalidRequest('Send either {"input": ...} or {"inputs": [..., ...]}.')
    if "input" in given:
        return [given.pop("input")]
    values = given.pop("inputs")
    if not isinstance(values, list) or not values:
        raise InvalidRequest("inputs: send a list with at least one input.", param="inputs")
    if len(values) > settings.max_inputs:
        raise too_many(len(values), settings.max_inputs)
    return values


def _told(value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """Returns an input as it goes to the engine. Raises InvalidRequest."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # the parser goes deeper than what writes it, and reads lone surrogates
        raise InvalidRequest("An input is nested too deep, or holds a lone surrogate.") from None
