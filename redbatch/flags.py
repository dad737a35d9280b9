"""Command-line flags generated from settings classes: one flag per field, so that none is missing or differs."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic_settings import BaseSettings
from rich.markup import escape
from typer.core import TyperCommand

from shared.option_words import NUMBERS, choices_of, what_it_takes
from shared.process.settings import flag_of, variable_of

METAVARS: dict[type, str] = {int: "INTEGER", float: "NUMBER", bool: "BOOLEAN", str: "TEXT"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a settings class for users: flag, variable, default (None: decided later), meaning.

    `choices` are all its values, if these are a list. `takes` describes the values that it may have; empty if any text
    may be one. `title` is a short line for the list of settings; empty if the meaning begins with one.
    """

    name: str
    kind: type
    default: str | None
    meaning: str
    choices: tuple[str, ...] = ()
    takes: str = ""
    title: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return flag_of(self.name)

    @property
    def variable(self) -> str:
        """The environment variable."""
        return variable_of(self.name)


def settings_of(model: type[BaseSettings]) -> list[Setting]:
    """Returns the settings of a class in the order of its fields."""
    return [
        Setting(
            name=name,
            kind=_plain_type(field.annotation),
            default=None if field.default is None else str(field.default),
            meaning=field.description or "",
            choices=choices_of(field.annotation),
            takes=what_it_takes(field.annotation, field.metadata),
            title=field.title or "",
        )
        for name, field in model.model_fields.items()
    ]


def _plain_type(annotation: object) -> type:
    """Returns the type inside Annotated and Optional: str for `QueueName | None`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain_type(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return next(_plain_type(part) for part in get_args(annotation) if part is not type(None))
    return annotation if isinstance(annotation, type) and annotation in METAVARS else str


@dataclass(frozen=True, slots=True)
class Panel:
    """A group of settings under one heading of the help."""

    title: str | None
    settings: Sequence[Setting]


class SettingsCommand(TyperCommand):
    """A command with settings as flags. One that is true or false needs no value: `--span` is `--span true`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as in PlainWords
        """Parses arguments, and adds the values that are left out."""
        booleans = {name for each in self.params if each.metavar == METAVARS[bool] for name in each.opts}
        complete = [
            [each, "true"] if each in booleans and following.startswith("-") else [each]
            for each, following in pairwise([*args, "--"])
        ]
        return super().parse_args(ctx, [each for part in complete for each in part])


def settings_command(
    app: typer.Typer,
    *panels: Panel,
    **options: Any,  # noqa: ANN401 - typer's
) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Decorates a command of an application, which gets a flag for each setting. `options` are those of `app.command`.

    The command receives `overrides`: the settings that the user gave, as text (a flag overrides a variable). Pydantic
    parses and validates them, in one place and with one wording. The command returns the exit code.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., None]:
        command_parameters = list(inspect.signature(command, eval_str=True).parameters.values())
        names = [setting.name for panel in panels for setting in panel.settings]
        example = panels[0].settings[0]

        @functools.wraps(command)
        def run(context: typer.Context, **values: object) -> None:
            texts = {name: str(values.pop(name)) for name in names}
            overrides = {name: text for name, text in texts.items() if _is_set_by_user(context, name)}
            raise typer.Exit(command(overrides=overrides, **values))

        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(parameter for parameter in command_parameters if parameter.name != "overrides"),
            *(_parameter(setting, panel.title) for panel in panels for setting in panel.settings),
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        epilog = f"Each setting is also a variable, which its flag overrides: {example.flag} is {example.variable}."
        app.command(cls=SettingsCommand, epilog=epilog, **options)(run)
        return run

    return decorate


def _parameter(setting: Setting, title: str | None) -> inspect.Parameter:
    option = typer.Option(
        setting.flag,
        envvar=setting.variable,
        show_envvar=False,
        metavar=METAVARS[setting.kind],
        help=with_values(escape(setting.meaning), setting.takes),
        rich_help_panel=title,
        autocompletion=(lambda: setting.choices) if setting.choices else None,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=setting.default,
        annotation=Annotated[str | None, option],
    )


def with_values(help_text: str, takes: str) -> str:
    """Returns the help of an option with the values that it takes, unless it names them."""
    is_known = not takes or takes in NUMBERS.values() or takes in help_text
    return help_text if is_known else f"{help_text} {escape(f'[{takes}]')}"


def _is_set_by_user(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}
