"""Errors about arguments in the words of this program: typer's own are those of pydantic."""

from __future__ import annotations

from typing import Any

import typer
from annotated_types import Ge, Le
from typer.core import TyperGroup

from shared.option_words import what_it_takes


class PlainErrors(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer does not export the class that it declares
        """Runs a command. Raises BadParameter that says what the option takes, where its type says that."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.__cause__ is not None:  # a value that typer could not convert; other messages are ours
                error.message = _words(error.param) or error.message
            raise


def _words(parameter: object) -> str:
    """Returns what a number or a choice takes; empty for any other parameter, whose message is ours."""
    descriptor = getattr(parameter, "type_descriptor", None)
    lower, upper = getattr(parameter, "min", None), getattr(parameter, "max", None)
    bounds = [*([] if lower is None else [Ge(lower)]), *([] if upper is None else [Le(upper)])]
    words = "" if descriptor is None else what_it_takes(descriptor.annotation, bounds)
    return f"it takes {words}" if words else ""
