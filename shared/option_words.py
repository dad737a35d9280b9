"""What an option or a field of a body takes, in words, for errors: without patterns and pydantic's wording. Pure."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen
from pydantic.fields import FieldInfo

NUMBERS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Marks a field that takes texts of a form; `words` say which."""

    words: str


@dataclass(frozen=True, slots=True)
class OtherValue:
    """Marks a field that takes a word beside its numbers."""

    word: str


def choices_of(annotation: object) -> tuple[str, ...]:
    """Returns all values that a field with this annotation may have; none if they are not a list."""
    kinds = [kind for kind, _ in _leaves(annotation, ())]
    if kinds == [bool]:
        return ("true", "false")
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], Enum):
        return tuple(str(each.value) for each in kinds[0])
    if not all(get_origin(kind) is Literal for kind in kinds):
        return ()
    return tuple(str(value) for kind in kinds for value in get_args(kind))


def what_it_takes(annotation: object, metadata: Sequence[object] = ()) -> str:
    """Returns what a field takes, such as "a whole number from 1 to 64"; empty if it takes any text."""
    phrases: list[str] = []
    for kind, marks in _leaves(annotation, metadata):
        if takes := [mark.words for mark in marks if isinstance(mark, ValueForm)]:
            return takes[0]
        if kind in NUMBERS:
            phrases.append(f"{NUMBERS[kind]}{_range(marks)}")
        elif choices := choices_of(kind):
            phrases += choices
        elif lengths := [mark.max_length for mark in marks if isinstance(mark, MaxLen)]:
            phrases.append(f"at most {lengths[0]} characters")
        phrases += [mark.word for mark in marks if isinstance(mark, OtherValue) and mark.word not in phrases]
    return list_choices(phrases)


def list_choices(choices: Sequence[str]) -> str:
    """Returns choices as text: "a, b or c"."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), *choices[-1:])))


def _leaves(annotation: object, metadata: Sequence[object]) -> Iterator[tuple[Any, Sequence[object]]]:
    """Yields the types inside Annotated and unions, except None, each with its metadata and all metadata around it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        own = [each for mark in marks for each in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
        yield from _leaves(inner, (*metadata, *own))
    elif origin in {Union, types.UnionType}:
        for part in get_args(annotation):
            yield from _leaves(part, metadata)
    elif annotation is not type(None):
        yield annotation, metadata


def _range(marks: Sequence[object]) -> str:
    bounds = {type(mark): _number(mark) for mark in marks if isinstance(mark, Ge | Gt | Le)}
    lower = f" from {bounds[Ge]}" if Ge in bounds else f" above {bounds[Gt]}" if Gt in bounds else ""
    if Le in bounds:
        return f"{lower} to {bounds[Le]}" if Ge in bounds else f"{lower}, up to {bounds[Le]}"
    return f" of at least {bounds[Ge]}" if Ge in bounds else lower


def _number(bound: Ge | Gt | Le) -> str:
    value: Any = bound.ge if isinstance(bound, Ge) else bound.gt if isinstance(bound, Gt) else bound.le
    return str(int(value) if int(value) == value else value)
