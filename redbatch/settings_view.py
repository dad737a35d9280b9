"""`redbatch settings`: every setting with its default, value and meaning, as lines, JSON or Markdown; or one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_settings import BaseSettings
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from redbatch.exit_codes import report_misuse
from redbatch.flags import Setting, settings_of
from redbatch.tables import labelled_line, shorten
from redbatch.terminal import make_console, print_line
from shared.process.settings import PREFIX, read_settings
from shared.redis_url import mask_password

UNSET = "-"
MAX_VALUE_WIDTH = 10
"""Wider values push the meaning to the right."""

MIN_MEANING_WIDTH = 16
NUM_GUESSES = 3
TITLES = {"both": "Gateways and workers", "gateway": "Gateways", "worker": "Workers"}


class UnknownSettingError(ValueError):
    """There is no such setting; the message names similar ones."""


def show_settings(
    settings_classes: dict[str, type[BaseSettings]], name: str | None, *, in_json: bool, in_markdown: bool
) -> int:
    """Prints the settings of all processes; with a name, of that process, or that setting. Returns the exit code."""
    is_process = name is None or name in settings_classes
    if name is not None and is_process:
        settings_classes = {name: settings_classes[name]}
    rows = setting_rows(settings_classes, with_values=not in_markdown)
    try:
        rows = rows if name is None or is_process else find_setting(rows, name)
    except UnknownSettingError as error:
        return report_misuse(str(error))
    if in_json or in_markdown:
        print_line(as_json(rows) if in_json else as_markdown(rows))
    else:
        (print_table if is_process else print_details)(rows, make_console())
    return 0


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting, the process that has it ("gateway", "worker", "both"), and its value in this environment."""

    process: str
    setting: Setting
    value: str

    @property
    def is_changed(self) -> bool:
        """Whether this environment sets a value other than the default."""
        return self.shown_value != (self.setting.default or UNSET)

    @property
    def shown_value(self) -> str:
        """The value, or UNSET if there is none."""
        return self.value or UNSET


def setting_rows(settings_classes: dict[str, type[BaseSettings]], *, with_values: bool = True) -> list[SettingRow]:
    """Returns the settings of the processes. A setting that all have, with the same meaning, appears once, first.

    Exits the process with code 2 if the environment contains an invalid value.
    """
    rows: dict[Setting, SettingRow] = {}
    for process, settings_class in settings_classes.items():
        values = read_settings(settings_class).model_dump() if with_values else {}
        for setting in settings_of(settings_class):
            process_of = "both" if setting in rows else process
            value = _display_value(setting.name, values.get(setting.name))
            rows[setting] = SettingRow(process_of, setting, value)
    # Sorting is stable: within each process, the order of the fields stays.
    return sorted(rows.values(), key=lambda row: row.process != "both")


def find_setting(rows: Sequence[SettingRow], text: str) -> list[SettingRow]:
    """Returns a setting, by its name, flag or variable: a row for each meaning. Raises UnknownSettingError."""
    name = text.lower().lstrip("-").replace("-", "_").removeprefix(PREFIX.lower())
    found = [row for row in rows if row.setting.name == name]
    if found:
        return found
    close = difflib.get_close_matches(name, {row.setting.name for row in rows}, n=NUM_GUESSES)
    hint = f"did you mean {' or '.join(close)}?" if close else "`redbatch settings` lists all"
    raise UnknownSettingError(f"there is no setting {text}: {hint}")


def as_json(rows: Sequence[SettingRow]) -> str:
    """Returns the settings as a JSON array; a missing default or value is null."""
    return json.dumps(
        [
            {
                "process": row.process,
                "name": row.setting.name,
                "flag": row.setting.flag,
                "variable": row.setting.variable,
                "default": row.setting.default,
                "value": None if row.value == UNSET else row.value,
                "allowed": row.setting.takes,
                "meaning": row.setting.meaning,
            }
            for row in rows
        ],
        indent=2,
    )


def as_markdown(rows: Sequence[SettingRow]) -> str:
    """Returns the settings as a Markdown table, without the values of this environment."""
    lines = ["| Flag | Variable | Process | Default | Meaning |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        setting = row.setting
        default = f"`{setting.default}`" if setting.default else ""
        meaning = setting.meaning.replace("|", "\\|")
        lines.append(f"| `{setting.flag}` | `{setting.variable}` | {row.process} | {default} | {meaning} |")
    return "\n".join(lines)


def print_table(rows: Sequence[SettingRow], console: Console) -> None:
    """Prints a line for each setting; values that differ from the default are marked."""
    width = max(cell_len(row.setting.name) for row in rows)
    for number, row in enumerate(rows):
        if number == 0 or rows[number - 1].process != row.process:
            console.print(Text(f"{TITLES[row.process]}:", style="bold"))
        console.print(_line(row, width, console.width))
    note = "A value with * is set in this environment. " if any(row.is_changed for row in rows) else ""
    note += "`redbatch settings NAME` shows all about one. The flag of a_setting is --a-setting, and its variable is "
    console.print(Text(f"{note}{PREFIX}A_SETTING.", style="dim"))


def _line(row: SettingRow, name_width: int, width: int) -> Text:
    value = Text(f"{row.value}*", style="bold yellow") if row.is_changed else Text(row.shown_value)
    value.pad_right(max(0, MAX_VALUE_WIDTH - value.cell_len))
    line = Text.assemble(f"{row.setting.name:<{name_width}} ", value, " ")
    if width - line.cell_len >= MIN_MEANING_WIDTH:
        line.append(shorten(row.setting.title or row.setting.meaning, width - line.cell_len))
    return line


def print_details(rows: Sequence[SettingRow], console: Console) -> None:
    """Prints settings in full."""
    for row in rows:
        setting = row.setting
        console.print(Text.assemble((setting.name, "bold"), f" ({TITLES[row.process].lower()})"))
        console.print(Padding(Text(setting.meaning), (0, 0, 0, 2)))
        facts = {
            "flag": setting.flag,
            "variable": setting.variable,
            "default": setting.default or UNSET,
            "value": f"{row.value} (set in this environment)" if row.is_changed else row.shown_value,
            "allowed": setting.takes,
        }
        for label, value in facts.items():
            if value:
                console.print(labelled_line(label, value, len("variable")))


def _display_value(name: str, value: object) -> str:
    if value is None:
        return UNSET
    return mask_password(str(value)) if name.endswith("_url") else str(value)
