"""Text on its way to the terminal: control characters are escaped, wherever a command prints."""

from __future__ import annotations

import ast
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

import redbatch
from redbatch.tables import labelled_line, plain_table
from redbatch.terminal import PrintableConsole
from shared.process.log_text import printable, printable_line
from tests.terminal import HOSTILE

EXACT = {"completion.py": "a script for a shell", "commands.py": "OpenAPI", "command.py": "secrets as files"}
"""Modules that write a document with `typer.echo` as it is: nothing in it comes from Redis or a client."""

ANY_TEXT = st.text(st.characters(blacklist_categories=()))


@given(ANY_TEXT)
def test_what_is_printable_has_no_control_character(text: str) -> None:
    """Categories Cc (but tabs and newlines), Cs, Zl, Zp, and marks of direction are gone; all else is unchanged."""
    shown = printable(text)
    assert not any(unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} for each in re.sub("[\n\t]", "", shown))
    assert not any(unicodedata.bidirectional(each) in {"LRE", "RLE", "LRO", "RLO", "PDF"} for each in shown)
    assert not any(unicodedata.bidirectional(each) in {"LRI", "RLI", "FSI", "PDI"} for each in shown)
    assert printable(shown) == shown
    assert not {"\n", "\t"} & set(printable_line(text))


@given(st.dictionaries(st.text(), st.text()), st.booleans())
def test_json_keeps_its_meaning(value: dict[str, str], ascii_only: bool) -> None:
    """An escape is that of JSON, so the reader gets the text back."""
    assert json.loads(printable(json.dumps(value, ensure_ascii=ascii_only))) == value


@pytest.mark.parametrize("width", [40, 2_000])
def test_consoles_and_tables_escape(width: int) -> None:
    """Cells and values are one line each; a Text, a title and a plain string pass the console, which escapes them."""
    output = io.StringIO()
    console = PrintableConsole(file=output, width=width, highlight=False)
    table = plain_table("name", "text")
    table.add_row(HOSTILE, HOSTILE)
    console.print(table)
    console.print(labelled_line("label", HOSTILE, 5))
    assert width < 2_000 or not any(line.strip().startswith("forged") for line in output.getvalue().splitlines())
    console.print(Text(f"title{HOSTILE}"))
    console.print(f"text{HOSTILE}", markup=False)
    assert printable(output.getvalue()) == output.getvalue()
    assert "\\u001b[31m" in output.getvalue().replace("\n", "")


def calls(path: Path) -> set[str]:
    """Returns the names of the functions that a module calls, as it writes them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}


def test_there_is_no_other_way_to_the_terminal() -> None:
    """Modules of the commands print through redbatch.terminal, but for documents that must stay as they are."""
    found = {
        (path.name, call)
        for path in Path(redbatch.__path__[0]).rglob("*.py")
        for call in calls(path) & {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "rich.print"}
    }
    assert found == {("terminal.py", "typer.echo"), *((name, "typer.echo") for name in EXACT)}
