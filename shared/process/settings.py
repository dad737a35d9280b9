"""What is wrong with a setting, in words that name the flag and the variable."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

EXIT_CONFIGURATION = 2  # also what a worker ends with when its model cannot be loaded: starting again will not help

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def variable_of(field: str) -> str:
    """Returns the environment variable of a setting."""
    return f"REDBATCH_{field.upper()}"


def flag_of(field: str) -> str:
    """Returns the command-line flag of a setting."""
    return f"--{field.replace('_', '-')}"


def problems(error: ValidationError) -> list[str]:
    """Returns one line for each setting that was refused."""
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        # A union reports a place for each of its branches; the first part of the place is the setting.
        field = str(detail["loc"][0]) if detail["loc"] else ""
        where = f"{flag_of(field)} ({variable_of(field)})" if field else "settings"
        # The value of a URL stays unsaid: it may hold a password.
        got = "" if field.endswith("_url") or not field else f", got {detail['input']!r}"
        lines.append(f"{where}: {detail['msg']}{got}")
    return lines


def complain(message: str) -> None:
    """Tells the user, on stderr, why something does not work."""
    sys.stderr.write(f"redbatch: {message}\n")


def take_in_files(environment: MutableMapping[str, str]) -> None:
    """Sets each variable for which another, ending in _FILE, names a file: as secrets come to a container.

    Leaves the process with exit code 2 and a line on stderr when a file cannot be read, or both are set.
    """
    for name in [each for each in environment if each.startswith("REDBATCH_") and each.endswith("_FILE")]:
        plain = name.removesuffix("_FILE")
        if plain in environment:
            complain(f"{name}: {plain} is set too; take one of them")
            raise SystemExit(EXIT_CONFIGURATION)
        path = environment.pop(name)
        try:
            environment[plain] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            complain(f"{name}: {path} cannot be read ({type(error).__name__})")
            raise SystemExit(EXIT_CONFIGURATION) from None


def read_settings(kind: type[SettingsT], given: Mapping[str, str] | None = None) -> SettingsT:
    """Returns the settings: what was given on the command line, then the environment, then the defaults.

    Leaves the process with exit code 2 and one line for each problem on stderr when a value is refused.
    """
    take_in_files(os.environ)
    values: dict[str, Any] = dict(given or {})
    try:
        return kind(**values)
    except ValidationError as error:
        for line in problems(error):
            complain(line)
        raise SystemExit(EXIT_CONFIGURATION) from None
