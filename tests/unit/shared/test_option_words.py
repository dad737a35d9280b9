"""What an option takes, in words."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from shared.option_words import OtherValue, ValueForm, choices_of, list_choices, what_it_takes


class Colour(Enum):
    """Two choices."""

    RED = "red"
    BLUE = "blue"


class Example(BaseModel):
    """Fields of all kinds."""

    count: int = Field(default=1, ge=1, le=64)
    ratio: float | None = Field(default=None, gt=0, le=1)
    least: int = Field(default=1, ge=1)
    above: float = Field(default=1, gt=0.5)
    cores: Annotated[int | None, OtherValue("auto")] = Field(default=None, ge=1, le=8)
    wait: Annotated[float, Field(ge=0, le=60)] | Literal["auto"] = "auto"
    switch: bool = False
    mode: Literal["off", "on", "auto"] = "off"
    colour: Colour = Colour.RED
    device: Annotated[str, ValueForm("cpu or cuda:N")] | None = Field(default=None, pattern=r"^cpu|cuda:\d$")
    note: str = Field(default="", max_length=80)
    name: str | None = Field(default=None, max_length=80)
    text: str = ""


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "count": "a whole number from 1 to 64",
        "ratio": "a number above 0, up to 1",
        "least": "a whole number of at least 1",
        "above": "a number above 0.5",
        "cores": "a whole number from 1 to 8 or auto",
        "wait": "a number from 0 to 60 or auto",
        "switch": "true or false",
        "mode": "off, on or auto",
        "colour": "red or blue",
        "device": "cpu or cuda:N",
        "note": "at most 80 characters",
        "name": "at most 80 characters",
        "text": "",
    }.items(),
)
def test_a_field_says_what_it_takes(name: str, words: str) -> None:
    """By its type, its bounds and its marks, wherever they are in its annotation."""
    field = Example.model_fields[name]
    assert what_it_takes(field.annotation, field.metadata) == words


@pytest.mark.parametrize(
    ("annotation", "choices"),
    [
        (Literal["a", "b"] | None, ("a", "b")),
        (bool, ("true", "false")),
        (Colour, ("red", "blue")),
        (int, ()),
        (float | Literal["auto"], ()),
    ],
)
def test_choices_are_all_values_of_a_field(annotation: Any, choices: tuple[str, ...]) -> None:  # noqa: ANN401 - a type
    """Or none, if it has others too."""
    assert choices_of(annotation) == choices


@pytest.mark.parametrize(
    ("choices", "text"), [((), ""), (("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")]
)
def test_choices_are_a_list_in_a_sentence(choices: tuple[str, ...], text: str) -> None:
    """With commas, and `or` before the last."""
    assert list_choices(choices) == text
