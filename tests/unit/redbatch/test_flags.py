"""Flags made from settings classes."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from typer.testing import CliRunner

from redbatch.flags import Panel, settings_of, with_flags


class Example(BaseSettings):
    """Settings of no process."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True)

    max_size: int = Field(default=64, description="Most of them.")
    name: Annotated[str, Field()] | None = Field(default=None, description="What it is called.")
    rate: float = Field(default=0.5, description="How fast.")


Calls = list[dict[str, str]]


@pytest.fixture
def calls() -> Calls:
    """What the command was given, call by call."""
    return []


@pytest.fixture
def app(calls: Calls) -> typer.Typer:
    """A command with the flags of Example and one of its own."""
    app = typer.Typer()

    @app.command()
    @with_flags(Panel("Example", settings_of(Example)))
    def command(given: dict[str, str], own: Annotated[int, typer.Option()] = 1) -> int:
        """Does nothing."""
        calls.append({**given, "own": str(own)})
        return 3

    return app


def test_each_field_is_a_setting_in_order() -> None:
    """Name, type under Optional and Annotated, default and meaning come from the field."""
    assert [(each.flag, each.variable, each.kind, each.default, each.meaning) for each in settings_of(Example)] == [
        ("--max-size", "REDBATCH_MAX_SIZE", int, "64", "Most of them."),
        ("--name", "REDBATCH_NAME", str, None, "What it is called."),
        ("--rate", "REDBATCH_RATE", float, "0.5", "How fast."),
    ]


def test_defaults_are_not_given(app: typer.Typer, calls: Calls) -> None:
    """A command learns only what the user gave, so that defaults stay where they are defined; it sets the exit code."""
    result = CliRunner().invoke(app, ["--own", "2"])
    assert result.exit_code == 3
    assert calls == [{"own": "2"}]


def test_flag_wins_over_variable(app: typer.Typer, calls: Calls) -> None:
    """Both count as given; of the two, the flag is taken."""
    environment = {"REDBATCH_MAX_SIZE": "7", "REDBATCH_NAME": "from-environment"}
    CliRunner().invoke(app, ["--name", "from-flag"], env=environment)
    assert calls == [{"max_size": "7", "name": "from-flag", "own": "1"}]


def test_help_teaches_flag_variable_default_and_meaning(app: typer.Typer) -> None:
    """The help shows all that one has to know of a setting."""
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for expected in ("--max-size", "REDBATCH_MAX_SIZE", "64", "Most of them.", "INTEGER"):
        assert expected in text
