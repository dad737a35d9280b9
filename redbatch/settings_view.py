"""`redbatch settings`: every setting with its variable, default, value and meaning, as a table, JSON or Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_settings import BaseSettings
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redbatch.flags import Setting, settings_of
from shared.process.settings import read_settings
from redbatch.urls import mask_password

UNSET = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """A setting, which processes have it ("gateway", "worker", "both"), and its value in this environment."""

    process: str
    setting: Setting
    value: str


def rows(kinds: dict[str, type[BaseSettings]], *, with_values: bool = True) -> list[Row]:
    """Returns the settings of the processes; one that all of them have, with the same meaning, comes once, first.

    Leaves the process with exit code 2 when the environment holds a value that is refused.
    """
    found: dict[Setting, Row] = {}
    for process, kind in kinds.items():
        values = read_settings(kind).model_dump() if with_values else {}
        for setting in settings_of(kind):
            process_of = "both" if setting in found else process
            found[setting] = Row(process_of, setting, _shown(setting.name, values.get(setting.name)))
    # Sorting is stable: within each process the order of the fields stays.
    return sorted(found.values(), key=lambda row: row.process != "both")


def as_json(rows: Sequence[Row]) -> str:
    """Returns the settings as a JSON array; what has no default or no value is null."""
    return json.dumps(
        [
            {
                "process": row.process,
                "name": row.setting.name,
                "flag": row.setting.flag,
                "variable": row.setting.variable,
                "default": row.setting.default,
                "value": None if row.value == UNSET else row.value,
                "meaning": row.setting.meaning,
            }
            for row in rows
        ],
        indent=2,
    )


def as_markdown(rows: Sequence[Row]) -> str:
    """Returns the settings as a Markdown table, without this environment's values."""
    lines = ["| Flag | Variable | Process | Default | Meaning |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        setting = row.setting
        default = f"`{setting.default}`" if setting.default else ""
        meaning = setting.meaning.replace("|", "\\|")
        lines.append(f"| `{setting.flag}` | `{setting.variable}` | {row.process} | {default} | {meaning} |")
    return "\n".join(lines)


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Prints the settings as a table; values that differ from the default stand out."""
    table = Table(title="Settings of this environment", title_justify="left", show_lines=False)
    for heading in ("Variable", "Process", "Default", "Value", "Meaning"):
        # A variable that is cut short cannot be copied.
        table.add_column(heading, no_wrap=heading == "Variable", overflow="fold")
    for row in rows:
        default = row.setting.default or UNSET
        value = Text(row.value, style="bold yellow" if row.value != default else "")
        table.add_row(row.setting.variable, row.process, Text(default), value, Text(row.setting.meaning))
    console.print(table)


def _shown(name: str, value: object) -> str:
    if value is None:
        return UNSET
    return mask_password(str(value)) if name.endswith("_url") else str(value)
