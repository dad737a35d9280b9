"""Reads settings, and reports invalid ones in lines that name the flag and the variable."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

EXIT_CONFIGURATION = 2  # also the exit code of a worker that cannot load its model: a restart does not help

PREFIX = "REDBATCH_"
"""The prefix of the variables of all settings."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def variable_of(field: str) -> str:
    """Returns the environment variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def flag_of(field: str) -> str:
    """Returns the command-line flag of a setting."""
    return f"--{field.replace('_', '-')}"


def describe_errors(error: ValidationError) -> list[str]:
    """Returns one line for each invalid setting."""
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        # A union reports a location for each of its branches; the first part of the location is the setting.
        field = str(detail["loc"][0]) if detail["loc"] else ""
        where = f"{flag_of(field)} ({variable_of(field)})" if field else "settings"
        # The value of a URL is left out: it may hold a password.
        got = "" if field.endswith("_url") or not field else f", got {detail['input']!r}"
        lines.append(f"{where}: {detail['msg']}{got}")
    return lines


def print_error(message: str) -> None:
    """Writes a line to stderr that says why something failed."""
    sys.stderr.write(f"redbatch: {message}\n")


def read_file_variables(environment: MutableMapping[str, str]) -> None:
    """Sets each variable for which another, ending in _FILE, names a file: containers receive secrets in this way.

    Exits the process with code 2 and a line on stderr if a file cannot be read, or both variables are set.
    """
    for name in [each for each in environment if each.startswith(PREFIX) and each.endswith("_FILE")]:
        plain = name.removesuffix("_FILE")
        if plain in environment:
            print_error(f"{name}: {plain} is set too; use one of them")
            raise SystemExit(EXIT_CONFIGURATION)
        path = environment.pop(name)
        try:
            environment[plain] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            print_error(f"{name}: {path} cannot be read ({type(error).__name__})")
            raise SystemExit(EXIT_CONFIGURATION) from None


def read_settings(settings_type: type[SettingsT], given: Mapping[str, str] | None = None) -> SettingsT:
    """Returns the settings: values from the command line come first, then the environment, then the defaults.

    Exits the process with code 2 and one line for each problem on stderr if a value is invalid.
    """
    read_file_variables(os.environ)
    values: dict[str, Any] = dict(given or {})
    try:
        return settings_type(**values)
    except ValidationError as error:
        for line in describe_errors(error):
            print_error(line)
        raise SystemExit(EXIT_CONFIGURATION) from None
