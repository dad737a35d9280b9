"""Reads settings, and reports invalid ones in lines that name the flag and the variable."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from shared.option_words import what_it_takes
from shared.process.log_text import printable_line

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

EXIT_CONFIGURATION = 2  # also the exit code of a worker that cannot load its model: a restart does not help

PREFIX = "REDBATCH_"
"""The prefix of the variables of all settings."""

FILE_SETTINGS = (f"{PREFIX}REDIS_PASSWORD_FILE",)
"""Variables of settings that are files by themselves: they end in _FILE, but set no other variable."""

MAX_SHOWN_CHARS = 200
"""An error shows at most this much of an invalid value."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def variable_of(field: str) -> str:
    """Returns the environment variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def flag_of(field: str) -> str:
    """Returns the command-line flag of a setting."""
    return f"--{field.replace('_', '-')}"


def option_of(field: str) -> str:
    """Returns a setting as errors name it: its flag and its variable."""
    return f"{flag_of(field)} ({variable_of(field)})"


def describe_errors(settings_type: type[BaseSettings], error: ValidationError) -> list[str]:
    """Returns one line for each invalid setting, in the words of its flag and its variable."""
    fields = settings_type.model_fields
    # An error about several settings names them in its message, and the one to change first of all.
    flags = {name: flag_of(name) for name in fields if "_" in name}
    names = re.compile(rf"\b({'|'.join(flags) or '(?!)'})\b")
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        # A union reports a location for each of its branches; the first part of the location is the setting.
        field, message = str(detail["loc"][0]) if detail["loc"] else "", _describe(settings_type, detail)
        # The value of a URL, or of several, is left out: it may hold a password.
        got = f", got {_shorten(detail['input'])}" if field and not field.endswith(("_url", "_shards")) else ""
        if not field and message.partition(":")[0] in fields:
            field, _, message = message.partition(": ")
        where = f"{option_of(field)}: " if field else ""
        lines.append(where + names.sub(lambda name: flags[name[0]], message) + got)
    return list(dict.fromkeys(lines))


def _describe(settings_type: type[BaseSettings], detail: ErrorDetails) -> str:
    """Returns what is wrong: a validator of ours says so, and for any other error the field says what it takes."""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    field = settings_type.model_fields[str(detail["loc"][0])]
    words = what_it_takes(field.annotation, field.metadata)
    return f"it takes {words}" if words else "it does not take this value"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def describe_file_error(error: OSError | ValueError) -> str:
    """Returns why a text file cannot be read or written, in words and without its path."""
    return "it is not UTF-8" if isinstance(error, ValueError) else error.strerror or type(error).__name__


def print_error(message: str) -> None:
    """Writes a line to stderr that says why something failed, with control characters and newlines escaped."""
    sys.stderr.write(f"redbatch: {printable_line(message)}\n")


def read_file_variables(environment: MutableMapping[str, str]) -> None:
    """Sets each variable for which another, ending in _FILE, names a file: containers receive secrets in this way.

    The file /dev/null sets none: files of a stack that follow others can neither remove nor empty their variables.

    Exits the process with code 2 and a line on stderr if a file cannot be read, or both variables are set.
    """
    for name in [each for each in environment if each.startswith(PREFIX) and each.endswith("_FILE")]:
        if name in FILE_SETTINGS:
            continue
        plain = name.removesuffix("_FILE")
        if environment[name] == os.devnull:
            del environment[name]
            continue
        if plain in environment:
            print_error(f"{name}: {plain} is set too; use one of them")
            raise SystemExit(EXIT_CONFIGURATION)
        path = environment.pop(name)
        try:
            environment[plain] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            print_error(f"{name}: {path} cannot be read ({describe_file_error(error)})")
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
        for line in describe_errors(settings_type, error):
            print_error(line)
        raise SystemExit(EXIT_CONFIGURATION) from None
