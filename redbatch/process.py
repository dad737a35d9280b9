"""What is wrong with a setting, in words that name the flag and the variable."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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


def read_settings(kind: type[SettingsT], given: Mapping[str, str] | None = None) -> SettingsT:
    """Returns the settings: what was given on the command line, then the environment, then the defaults.

    Leaves the process with exit code 2 and one line for each problem on stderr when a value is refused.
    """
    values: dict[str, Any] = dict(given or {})
    try:
        return kind(**values)
    except ValidationError as error:
        for line in problems(error):
            complain(line)
        raise SystemExit(EXIT_CONFIGURATION) from None
