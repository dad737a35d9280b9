"""Bodies of requests for any route, made from a template of the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

LISTS = ("texts", "numbers")
_PLACEHOLDER = re.compile(r"\{(texts?|numbers?)\}")


class InvalidBodyError(ValueError):
    """The template is no JSON, cannot be read, or does not fit the other options; the message says why."""


class BodyTemplate:
    """JSON in which strings hold placeholders. A string that is nothing else becomes the value itself.

    `{text}` is a text, `{number}` counts the requests from 0. `{texts}` and `{numbers}` are lists with a value for each
    input of the request, and stand alone in their string.

    Raises:
        InvalidBodyError: the text is no JSON, or a list is a part of a string.
    """

    def __init__(self, text: str) -> None:
        try:
            self._document = json.loads(text)
        except ValueError as error:
            raise InvalidBodyError(f"it is not valid JSON{_describe_fault(text, error)}") from None
        strings = list(_strings(self._document))
        self.placeholders = frozenset(name for each in strings for name in _PLACEHOLDER.findall(each))
        for name in LISTS:
            if any(f"{{{name}}}" in each and each != f"{{{name}}}" for each in strings):
                raise InvalidBodyError(f"{{{name}}} is a list, and has to be a separate string")

    @property
    def num_texts_more(self) -> int:
        """Number of texts that a request has besides those of its inputs: the query of a route that ranks texts."""
        return 1 if {"text", "texts"} <= self.placeholders else 0

    def check(self, inputs: int, *, texts_given: bool) -> None:
        """Raises InvalidBodyError: an option for texts or inputs would have no effect."""
        if inputs > 1 and not self.placeholders & set(LISTS):
            raise InvalidBodyError("it has neither {texts} nor {numbers}, which --inputs-per-request needs")
        if texts_given and not self.placeholders & {"text", "texts"}:
            raise InvalidBodyError("it has neither {text} nor {texts}, which --texts needs")

    def fill(self, requests: Iterable[Sequence[str]]) -> Iterator[bytes]:
        """Yields the bodies for the texts of requests; a single one without placeholders."""
        for index, texts in enumerate(requests):
            inputs = texts[self.num_texts_more :]
            first = index * len(inputs)
            values: dict[str, Any] = {
                "text": texts[0],
                "texts": list(inputs),
                "number": index,
                "numbers": list(range(first, first + len(inputs))),
            }
            body = json.dumps(_filled(self._document, values), ensure_ascii=False)
            yield body.encode("utf-8", "surrogatepass")
            if not self.placeholders:
                return


def read_template(value: str) -> BodyTemplate:
    """Returns the template in the value of --body: its text, or the file after an @. Raises InvalidBodyError."""
    if not value.startswith("@"):
        return BodyTemplate(value)
    try:
        text = Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidBodyError(f"{value}: the file cannot be read ({reason})") from None
    return BodyTemplate(text)


def _describe_fault(text: str, error: ValueError) -> str:
    """Returns what to write instead, if that is known, and where."""
    if not isinstance(error, json.JSONDecodeError):
        return ": it has a number of too many digits"
    place = f" (line {error.lineno}, column {error.colno})"
    if text[error.pos : error.pos + 1] == "'":
        return f": texts and names are in double quotes{place}"
    if _PLACEHOLDER.match(text, error.pos - 1):  # Python takes its brace for the begin of an object
        return f': placeholders are in quotes: {{"input": "{{number}}"}}{place}'
    return place


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _filled(value: object, values: dict[str, Any]) -> object:
    if isinstance(value, dict):
        return {name: _filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    return values[whole[1]] if whole else _PLACEHOLDER.sub(lambda found: str(values[found[1]]), value)
