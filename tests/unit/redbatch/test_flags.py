"""Flags generated from settings classes."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from typer.testing import CliRunner

from redbatch.flags import Panel, settings_command, settings_of


class Example(BaseSettings):
    """Settings of no real process."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True)

    max_size: int = Field(default=64, ge=1, title="Most", description="Maximum size.")
    name: Annotated[str, Field()] | None = Field(default=None, description="Name of the example.")
    rate: float = Field(default=0.5, description="Rate of the example.")
    shared: bool = Field(default=False, description="Whether it is shared.")


Calls = list[dict[str, str]]


@pytest.fixture
def calls() -> Calls:
    """The settings that the command received, one dict per call."""
    return []


@pytest.fixture
def app(calls: Calls) -> typer.Typer:
    """A command with the flags of Example and one more option."""
    app = typer.Typer()

    @settings_command(app, Panel("Example", settings_of(Example)))
    def command(overrides: dict[str, str], extra: Annotated[int, typer.Option()] = 1) -> int:
        """Does nothing."""
        calls.append({**overrides, "extra": str(extra)})
        return 3

    return app


def test_each_field_is_a_setting_in_order() -> None:
    """Name, type inside Optional and Annotated, default and meaning come from the field."""
    assert [(each.flag, each.variable, each.kind, each.default, each.meaning) for each in settings_of(Example)] == [
        ("--max-size", "REDBATCH_MAX_SIZE", int, "64", "Maximum size."),
        ("--name", "REDBATCH_NAME", str, None, "Name of the example."),
        ("--rate", "REDBATCH_RATE", float, "0.5", "Rate of the example."),
        ("--shared", "REDBATCH_SHARED", bool, "False", "Whether it is shared."),
    ]


def test_defaults_are_not_passed(app: typer.Typer, calls: Calls) -> None:
    """A command receives only the settings of the user, not the defaults; its result is the exit code."""
    result = CliRunner().invoke(app, ["--extra", "2"])
    assert result.exit_code == 3
    assert calls == [{"extra": "2"}]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--shared"], "true"), (["--shared", "--name", "a"], "true"), (["--shared", "false"], "false"), ([], None)],
)
def test_a_flag_of_yes_or_no_needs_no_value(
    app: typer.Typer, calls: Calls, arguments: list[str], value: str | None
) -> None:
    """`--span` alone turns it on, whatever option comes behind it; a value may turn it off."""
    assert CliRunner().invoke(app, arguments).exit_code == 3
    assert calls[0].get("shared") == value


def test_flag_wins_over_variable(app: typer.Typer, calls: Calls) -> None:
    """Flags and variables both reach the command; a flag overrides the variable."""
    environment = {"REDBATCH_MAX_SIZE": "7", "REDBATCH_NAME": "from-environment"}
    CliRunner().invoke(app, ["--name", "from-flag"], env=environment)
    assert calls == [{"max_size": "7", "name": "from-flag", "extra": "1"}]


def test_help_shows_flag_variable_default_and_meaning(app: typer.Typer) -> None:
    """The help shows flag, variable, default, meaning and type of a setting, and not its title."""
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for expected in (
        "--max-size",
        "REDBATCH_MAX_SIZE",
        "64",
        "Maximum size. [a whole number of at least 1]",
        "INTEGER",
    ):
        assert expected in text
    assert "Most" not in text
