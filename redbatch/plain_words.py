"""Help and errors about arguments in the words of this program: typer's own are those of Python and pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from annotated_types import Ge, Le
from typer.core import TyperGroup, TyperOption

from redbatch.flags import METAVARS, with_values
from shared.option_words import list_choices, what_it_takes


class PlainWords(TyperGroup):
    """The group of all commands. Its errors say what an option takes, and which one a misspelt one may be."""

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 - typer's
        super().__init__(**arguments)
        _describe_options([self], self.context_settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer does not export its class
        """Parses the arguments before the command."""
        with _plain_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Runs a command."""
        with _plain_errors():
            return super().invoke(ctx)


def _describe_options(commands: Iterable[Any], context_settings: Mapping[str, Any]) -> None:
    """Lets the help of commands say what each option takes; typer shows kinds of Python, and ranges as `1<=x<=64`."""
    for command in commands:
        help_option = command.get_help_option(typer.Context(command, **context_settings))
        for each in (*command.params, help_option):
            if isinstance(each, TyperOption) and each.is_flag:
                each.metavar = ""
            elif isinstance(each, TyperOption):
                kind = each.type_descriptor.annotation
                each.metavar = each.metavar or ("FILE" if kind is Path else METAVARS.get(kind, "TEXT"))
                each.help = with_values(each.help or "", _words(each))
                each.min = each.max = None  # for the help alone
        _describe_options(getattr(command, "commands", {}).values(), context_settings)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Replaces the words of errors that typer raises."""
    try:
        yield
    except typer.BadParameter as error:
        if error.__cause__ is not None and (words := _words(error.param)):  # typer could not convert a value
            error.message = f"it takes {words}"
        raise
    except typer.TyperException as error:
        nearest: list[str] = getattr(error, "possibilities", None) or []
        if nearest:  # typer would sort them by the alphabet
            error.message += f". Did you mean {list_choices(nearest)}?"
            error.__dict__["possibilities"] = None
        raise


def _words(parameter: object) -> str:
    """Returns what a number or a choice takes; empty for any other parameter."""
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None:
        return ""
    lower, upper = descriptor.parameter_info.min, descriptor.parameter_info.max
    bounds = [*([] if lower is None else [Ge(lower)]), *([] if upper is None else [Le(upper)])]
    return what_it_takes(descriptor.annotation, bounds)
