"""Bodies as values, for the dialects whose inputs may be texts or token ids."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import orjson

from api.dialects.request import too_many
from shared.codec import encode_ids
from shared.errors import InvalidRequest, TooLarge
from shared.messages import Input

MOST_PARTS = 500_000
"""Most lists, objects, fields, texts and numbers in a body, by its punctuation, which counts within texts as well."""

PIECE_BYTES = 2**20
DIGITS, COMMA, BLANK = 10, ord(","), ord(" ")

IDS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "minItems": 1,
}
_TEXT = {"type": "string", "minLength": 1}
INPUTS: dict[str, Any] = {
    "description": "A text, the token ids of one, or a list of such.",
    "anyOf": [_TEXT, IDS, {"type": "array", "items": {"anyOf": [_TEXT, IDS]}, "minItems": 1}],
}
"""JSON schema of what `inputs_of` takes."""


def fields_of(body: bytes) -> dict[str, Any]:
    """Returns the fields of a body; null stands for one that is left out. Raises as `object_of` does."""
    return {name: value for name, value in object_of(body).items() if value is not None}


def object_of(body: bytes) -> dict[str, Any]:
    """Returns the object that a body is.

    orjson is the fastest to make values of 32 MB of texts: a tenth of a second. Numbers would take it a second, lists
    and objects several, and a gigabyte; there are no more of them than in any sensible body.

    Raises:
        InvalidRequest: it is no JSON object.
        TooLarge: it holds too much.
    """
    if not _is_sensible(body):
        raise TooLarge("The body holds too many token ids, texts or lists: send fewer at once.")
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error.msg}.") from None
    if not isinstance(given, dict):
        raise InvalidRequest("body: send an object.")
    return given


def _is_sensible(body: bytes) -> bool:
    """Whether there are no more lists, objects, fields, texts and numbers in a body than MOST_PARTS.

    It is looked at piece by piece: counting takes longest where there is most to count.
    """
    parts = 0
    for start in range(0, len(body) if len(body) > MOST_PARTS else 0, PIECE_BYTES):
        end = start + PIECE_BYTES
        piece = np.frombuffer(body[start:end], dtype=np.uint8)
        before = piece[:-1]
        parts += int(np.count_nonzero(((before - ord("0") < DIGITS) | (before <= BLANK)) & (piece[1:] == COMMA)))
        quotes = body.count(b'"', start, end) - body.count(b'\\"', start, end)
        parts += quotes // 2 + body.count(b"[", start, end) + body.count(b"{", start, end)
        if parts > MOST_PARTS:
            return False
    return True


def inputs_of(given: object, most: int, name: str, *, partial: bool = False) -> tuple[Input, ...]:
    """Returns the inputs; a list of numbers is the ids of one text's tokens. A long list is not looked at in vain.

    Args:
        given: what the field holds.
        most: so many inputs are allowed.
        name: of the field.
        partial: whether the others go on without an empty text.

    Raises:
        InvalidRequest: these are no inputs.
        TooLarge: there are more than `most`.
    """
    inputs: tuple[Input | None, ...] = ()
    if isinstance(given, list) and given and type(given[0]) is not int:
        if len(given) > most:
            raise too_many(len(given), most)
        inputs = tuple(map(_input, given))
    elif given:
        inputs = (_input(given),)
    found = tuple(each for each in inputs if each or (partial and each == "" and len(inputs) > 1))
    if not found or len(found) < len(inputs):
        message = (
            f"{name}: send a text, a list of texts, a list of token ids, or a list of such lists; none of them empty."
        )
        raise InvalidRequest(message, param=name)
    return found


def _input(given: object) -> Input | None:
    if isinstance(given, str):
        return given
    if not (isinstance(given, list) and given and all(type(each) is int for each in given)):  # True is an int too
        return None
    try:
        return encode_ids(given)
    except struct.error:
        return None
