"""Parses bodies into inputs and checks these, for all dialects: texts, token ids, and their limits. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import orjson

from api.dialects.long_integers import mark_long_integers
from api.dialects.request import NO_INPUT_ERRORS
from api.dialects.strict_body import fields_of
from shared.codec import encode_ids
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import Input
from shared.option_words import what_it_takes

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from api.settings_groups import RequestLimits

MAX_PARTS = 500_000
"""Maximum number of lists, objects, fields, texts and numbers in a body.

The parts are counted by the body's punctuation, which counts within texts as well.
"""

MAX_FIELD_CHARS = 128
"""Maximum characters of a field's name in an error: an unknown field may have any name."""

FAULT_WORDS = {
    "missing": "it is missing",
    "string_type": "send a text",
    "list_type": "send a list",
    "model_type": "send an object",
    "bool_type": "send true or false",
    "bool_parsing": "send true or false",
    "string_too_long": "send at most {max_length} characters",
    "too_short": "send a list of at least {min_length}",
}
"""What is wrong with a field, by the kind of fault that pydantic finds. Its own words name types of Python."""

OTHER_FIELDS: dict[tuple[int | str, ...], tuple[str, str]] = {
    ("text",): ("texts", "; for several, use texts"),
    ("texts",): ("text", "; for a single text, use text"),
    ("inputs",): ("input", "; for a single input, use input"),
}
"""For a field that was sent one value in place of a list, or the reverse: the field that takes it, and what to do."""

Unserved = Mapping[str, tuple[tuple[object, ...], str]]
"""Fields of other servers that have no effect here: the values that change nothing, and the advice for all others."""

PIECE_BYTES = 2**20
DIGITS, COMMA, BLANK = 10, ord(","), ord(" ")

MAX_ID = 2**32 - 1
IDS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": MAX_ID},
    "minItems": 1,
}
TEXT = {"type": "string", "minLength": 1}
INPUTS: dict[str, Any] = {
    "description": "A text, the token ids of one text, or a list of texts and lists of token ids.",
    "anyOf": [TEXT, IDS, {"type": "array", "items": {"anyOf": [TEXT, IDS]}, "minItems": 1}],
}
"""JSON schema of the field that `parse_inputs` takes."""


class CombinationError(InvalidRequestError):
    """Two fields contradict each other, or the model cannot do what a valid field asks for."""


def parse_fields(body: bytes) -> dict[str, Any]:
    """Returns the fields of a body without those that are null. Raises as `parse_object` does."""
    return {name: value for name, value in parse_object(body).items() if value is not None}


def parse_openai_fields(body: bytes) -> dict[str, Any]:
    """Returns what `parse_fields` does. Raises InvalidRequestError: also for too many parts, as OpenAI answers 400."""
    try:
        return parse_fields(body)
    except TooLargeError as error:
        raise InvalidRequestError(error.message) from None


def check_served(values: Mapping[str, Any], unserved: Unserved) -> None:
    """Raises InvalidRequestError: a field of a body would have an effect elsewhere, and has none here."""
    for name, (harmless, advice) in unserved.items():
        if name in values and values[name] not in harmless:
            raise InvalidRequestError(f"{name}: {advice}", param=name)


def one_of(fields: BaseModel, *names: str, key: Callable[[Any], object] | None = None) -> Any:  # noqa: ANN401 - theirs
    """Returns the value of a field that has several names, of which a body has one; else the default of the first name.

    Args:
        fields: the body.
        names: of the field.
        key: what two values have in common that mean the same; by default they have to be equal.

    Raises:
        CombinationError: the body has two of them, and they differ.
    """
    if fields.model_fields_set.isdisjoint(names[1:]):
        return getattr(fields, names[0])
    given = [(name, getattr(fields, name)) for name in names if name in fields.model_fields_set]
    given = [(name, value) for name, value in given if value is not None]
    if not given:
        return getattr(fields, names[0])
    first, value = given[0]
    for name, other in given[1:]:
        if (other != value) if key is None else (key(other) != key(value)):
            raise CombinationError(f"{name}: it contradicts {first}: send one of them.", param=name)
    return value


def parse_object(body: bytes, *, exact: bool = False) -> dict[str, Any]:
    """Returns the object in a body; if `exact`, with a mark for each integer that would be rounded.

    orjson is the fastest parser for 32 MB of texts: a tenth of a second. Numbers would take it a second, lists and
    objects several seconds and a gigabyte. MAX_PARTS bounds these; no sensible body has more.

    Raises:
        InvalidRequestError: the body is not a JSON object.
        TooLargeError: it holds too many parts.
    """
    check_parts(body)
    try:
        value = orjson.loads(mark_long_integers(body) if exact else body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error.msg}.") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("body: send an object.")
    return value


def check_parts(body: bytes) -> None:
    """Raises TooLargeError: a body or a line has over MAX_PARTS lists, objects, fields, texts and numbers.

    Counts piece by piece and stops at the limit: counting takes longest where there are most parts.
    """
    parts = 0
    for start in range(0, len(body) if len(body) > MAX_PARTS else 0, PIECE_BYTES):
        end = start + PIECE_BYTES
        piece = np.frombuffer(body[start:end], dtype=np.uint8)
        before = piece[:-1]
        parts += int(np.count_nonzero(((before - ord("0") < DIGITS) | (before <= BLANK)) & (piece[1:] == COMMA)))
        quotes = body.count(b'"', start, end) - body.count(b'\\"', start, end)
        parts += quotes // 2 + body.count(b"[", start, end) + body.count(b"{", start, end)
        if parts > MAX_PARTS:
            raise TooLargeError(
                f"There are too many texts, numbers, fields and lists in one JSON document, over {MAX_PARTS}: send "
                "fewer at once; a job may hold more, in lines (application/x-ndjson)."
            )


def parse_inputs(value: object, max_inputs: int, name: str, *, partial: bool = False) -> tuple[Input, ...]:
    """Returns the inputs in a field; a list of numbers is the token ids of one text.

    A list that is too long is rejected before its items are read.

    Args:
        value: of the field.
        max_inputs: maximum number of inputs.
        name: of the field.
        partial: whether an empty text is allowed among others, because the answer may lack its result.

    Raises:
        InvalidRequestError: the value holds no inputs, or something that is no input.
        TooLargeError: there are more than `max_inputs`.
    """
    inputs: tuple[Input | None, ...] = ()
    if isinstance(value, list) and value and type(value[0]) is not int:
        if len(value) > max_inputs:
            raise too_many_inputs_error(len(value), max_inputs)
        inputs = tuple(map(_input, value))
    elif value:
        inputs = (_input(value),)
    valid = tuple(each for each in inputs if each or (partial and each == "" and len(inputs) > 1))
    if not valid or len(valid) < len(inputs):
        raise _invalid_inputs_error(value, inputs, name, partial=partial)
    return valid


def _invalid_inputs_error(
    value: object, inputs: Sequence[Input | None], name: str, *, partial: bool
) -> InvalidRequestError:
    """Returns the error for a field with invalid inputs; in a list, it names the first one by its index."""
    if not isinstance(value, list) or not value:
        expected = "send a text, a list of texts, a list of token ids, or a list of such lists; none of them empty"
        return InvalidRequestError(f"{name}: {expected}.", param=name)
    if type(value[0]) is int:
        return _invalid_ids_error(value, name, name)
    index = next((i for i, each in enumerate(inputs) if each is None or not (each or partial)), 0)
    item = value[index]
    if isinstance(item, list) and item:
        return _invalid_ids_error(item, f"{name}[{index}]", name)
    fault = "is empty" if item in ("", []) else "is neither a text nor a list of token ids"
    return InvalidRequestError(f"{name}[{index}] {fault}.", param=name)


def _invalid_ids_error(ids: list[object], path: str, name: str) -> InvalidRequestError:
    index = next(i for i, each in enumerate(ids) if type(each) is not int or not 0 <= each <= MAX_ID)
    return InvalidRequestError(
        f"{path}[{index}]: in a list of token ids, each is a whole number from 0 to {MAX_ID}.", param=name
    )


def _input(value: object) -> Input | None:
    if isinstance(value, str):
        return value
    if not (isinstance(value, list) and value and all(type(each) is int for each in value)):  # True is an int too
        return None
    try:
        return encode_ids(value)
    except struct.error:
        return None


def invalid_body_error(error: ValidationError, model: type[BaseModel], hint: str = "") -> InvalidRequestError:
    """Returns the client's error for an invalid body: the field and what it takes, never the text, in plain words.

    Args:
        error: of the validation.
        model: of the body.
        hint: for a body that is no object.
    """
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return InvalidRequestError(f"The body is not valid JSON: {fault['msg'].removeprefix('Invalid JSON: ')}.")
    field = _path_of(fault, model)[:MAX_FIELD_CHARS]
    message = f"{field or 'body'}: {_describe_fault(fault, model)}." + (hint if not field else "")
    return InvalidRequestError(message, param=field or None)


def _path_of(fault: ErrorDetails, model: type[BaseModel]) -> str:
    """Returns the path of the field, as `inputs[0].content`: without types, which the location has of a union."""
    path, fields = "", fields_of(model)
    for part in fault["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in fields:
            path += f".{part}"
            fields = _nested_fields(fields[part].annotation)
    return path.removeprefix(".")


def _nested_fields(annotation: Any) -> dict[str, FieldInfo]:  # noqa: ANN401 - a type
    """Returns the fields of the models in a field's type, such as those of its items."""
    fields: dict[str, FieldInfo] = getattr(annotation, "model_fields", {})
    for each in get_args(annotation):
        fields = fields | _nested_fields(each)
    return fields


def _describe_fault(fault: ErrorDetails, model: type[BaseModel]) -> str:
    """Returns what is wrong: the kind of the fault says so, and for a number the field says what it takes."""
    kind, context, place = fault["type"], fault.get("ctx", {}), fault["loc"]
    if kind in FAULT_WORDS:
        other, hint = OTHER_FIELDS.get(place, ("", ""))
        return FAULT_WORDS[kind].format(**context) + (hint if other in model.model_fields else "")
    if kind == "literal_error":
        choices = str(context["expected"])
        return "send " + choices.replace("'", '"' if "'null'" in choices else "")  # null and "null" differ
    field = fields_of(model)[str(place[0])]
    return f"send {what_it_takes(field.annotation, field.metadata)}"


def texts_of(text: str | None, texts: list[str] | None) -> list[str]:
    """Returns the texts of a body that holds `text` or `texts`.

    Raises:
        InvalidRequestError: both fields are set, neither is, or `texts` is empty.
    """
    if (text is None) == (texts is None):
        raise InvalidRequestError('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    if text is not None:
        return [text]
    if not texts:
        raise InvalidRequestError("texts is empty: send at least one text.")
    return texts


def check_inputs(
    inputs: Sequence[Input], limits: RequestLimits, name: str, *, partial: bool = False
) -> Mapping[int, RequestError]:
    """Returns the errors of invalid inputs by index, if `partial`: the answer then goes on without them.

    Args:
        inputs: all inputs of the request.
        limits: the bounds.
        name: of the field that holds the inputs, with {} for the index.
        partial: see InferenceRequest; otherwise the first error is raised.

    Raises:
        InvalidRequestError: an input is empty.
        TooLargeError: there are too many inputs, or one is too long.
    """
    if len(inputs) > limits.max_inputs:
        raise too_many_inputs_error(len(inputs), limits.max_inputs)
    max_chars = limits.max_input_chars
    if all([0 < len(each) <= max_chars for each in inputs]):  # noqa: C419 - a generator takes three times as long
        return NO_INPUT_ERRORS
    errors = {i: error for i, each in enumerate(inputs) if (error := _input_error(i, each, max_chars, name))}
    if errors and not partial:
        raise next(iter(errors.values()))
    return errors


def _input_error(index: int, value: Input, max_chars: int, name: str) -> RequestError | None:
    length, unit = (len(value) // 4, "token ids") if isinstance(value, bytes) else (len(value), "characters")
    if length > max_chars:
        return TooLargeError(
            f"Input {index} has {length} {unit}, over the limit of {max_chars}: shorten it, or raise the setting "
            "max_input_chars of the gateway."
        )
    return None if length else InvalidRequestError(f"{name.format(index)} is empty.", param=name.partition("[")[0])


def too_many_inputs_error(num_inputs: int, max_inputs: int, setting: str = "max_inputs") -> TooLargeError:
    """Returns the error for a request with more inputs than a setting of the gateway allows."""
    return TooLargeError(
        f"{num_inputs} inputs are over the limit of {max_inputs}: send fewer at once, or raise the setting {setting} "
        "of the gateway."
    )
