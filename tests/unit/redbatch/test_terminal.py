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
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import redbatch
from redbatch.commands import app
from redbatch.tables import labelled_line, plain_table
from redbatch.terminal import PrintableConsole
from shared.process.log_text import printable, printable_line
from shared.process.settings import print_error
from tests.terminal import HOSTILE

WRITES = re.compile(
    r"^((rich\.)?print|(\w+\.)?s?echo|(rich\.\w+\.)?(Console|Live|Progress|Status)|sys\.\S+\.write|os\.write)$"
)
"""Calls that write to the terminal, or make what does."""

EXACT = {
    ("terminal.py", "typer.echo"),
    ("completion.py", "typer.echo"),  # a script for a shell
    ("commands.py", "typer.echo"),  # OpenAPI
    ("redis_users/command.py", "typer.echo"),  # secrets as files
    ("up/run_file.py", "os.write"),  # a file
}
"""Where a document is written as it is: nothing in it comes from Redis or a client."""

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


def test_no_line_ends_in_blanks() -> None:
    """Neither of tables and wrapped or indented text; blanks before other text stay, whatever their style."""
    output = io.StringIO()
    console = PrintableConsole(file=output, width=30, highlight=False)
    table = Table(box=None, show_header=False)
    table.add_row("a", Text("b  ").append("c", style="bold"), "")
    table.add_row("long", "and longer", "end")
    console.print(Group(Padding(Text("some words that wrap"), (0, 0, 0, 2)), table), "x", sep=" ")
    console.print(Text("words of a line that is wrapped, and more of them"))
    console.print(Text.assemble("a", (" ", "bold"), "  ", ("b", "bold"), "  \n \nc "))
    lines = output.getvalue().splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "  some words that wrap" in lines
    assert any(re.fullmatch(" *a +b  c", line) for line in lines)
    assert lines[-3:] == ["a   b", "", "c"]


@pytest.mark.parametrize("words", [("settings",), ("settings", "max_batch_size"), ("settings", "tracing")])
def test_settings_have_no_blanks_at_the_ends_of_lines(words: tuple[str, ...]) -> None:
    """As they would be in a file, or in what is copied from the terminal."""
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of a server in an error does not look like another line of the command."""
    print_error(f"the server says: {HOSTILE}")
    assert capsys.readouterr().err.count("\n") == 1


def ways_to_the_terminal(source: str) -> set[str]:
    """Returns the calls of a module that may write to the terminal, as it writes them."""
    found = set()
    for each in ast.walk(ast.parse(source)):
        if not isinstance(each, ast.Call):
            continue
        name = ast.unparse(each.func)
        has_console = any(keyword.arg == "console" for keyword in each.keywords)
        if name.split(".")[-1] in {"Live", "Progress", "Status"} and has_console:
            continue
        if WRITES.search(name):
            found.add(name)
    return found


@pytest.mark.parametrize(
    "way",
    [
        *("print(a)", "rich.print(a)", "click.echo(a)", "typer.secho(a)", "sys.stderr.write(a)", "os.write(1, a)"),
        *("sys.stdout.buffer.write(a)", "Console()", "rich.console.Console()", "Progress()", "Live(a)"),
    ],
)
def test_a_way_to_the_terminal_is_seen(way: str) -> None:
    """Each is found where a module uses it, however it is imported; a bar with a console of ours is not."""
    assert ways_to_the_terminal(f"def main():\n    {way}\n") == {way.partition("(")[0]}
    assert ways_to_the_terminal("Progress(console=console)") == ways_to_the_terminal("file.write(a)") == set()


def test_there_is_no_other_way_to_the_terminal() -> None:
    """Modules of the commands print through redbatch.terminal, but for documents that must stay as they are."""
    folder = Path(redbatch.__path__[0])
    found = {
        (str(path.relative_to(folder)), way)
        for path in folder.rglob("*.py")
        for way in ways_to_the_terminal(path.read_text(encoding="utf-8"))
    }
    assert found == EXACT
