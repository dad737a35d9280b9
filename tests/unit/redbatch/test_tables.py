"""Tables that commands print: they never break a word."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from redbatch.tables import PlainTable, plain_table, shorten

WORD = st.text("abcdefgh-_.:/", min_size=1, max_size=30)
CELL = st.lists(WORD, max_size=5).map(" ".join)


def text_of(table: PlainTable, width: int) -> str:
    """Returns a table as a console of that width shows it."""
    output = io.StringIO()
    Console(file=output, width=width).print(table)
    return output.getvalue()


@given(st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=4), st.integers(60, 140))
def test_no_word_is_broken(rows: list[tuple[str, ...]], width: int) -> None:
    """At any width that the longest word and a label fit into, all words of all cells are whole, and none is lost."""
    table = plain_table("name", "state")
    table.add_columns("a number", justify="right")
    table.add_columns("error")
    for row in rows:
        table.add_row(*row)
    text = text_of(table, width)
    assert all(len(line) <= width for line in text.splitlines())
    printed = text.split()
    for word in " ".join(" ".join(row) for row in rows).split():
        printed.remove(word)


def test_a_wide_console_has_a_row_a_line() -> None:
    """If there is room, cells do not wrap, and columns are two spaces apart."""
    table = plain_table("id", "worker")
    table.add_columns("inputs", justify="right", no_wrap=True)
    table.add_row("1-0", "gpu 1", "12")
    assert [line.rstrip() for line in text_of(table, 80).splitlines()] == ["id   worker  inputs", "1-0  gpu 1       12"]


def test_a_narrow_console_has_labelled_values() -> None:
    """If the longest words do not fit beside each other, a row is its first cell, with the other cells under it.

    These have their headings, and those that fit share a line; empty ones are left out.
    """
    table = plain_table("id", "worker", "state", "note", "error")
    for number in range(2):
        table.add_row(
            f"minilm.{'5' * 20}", f"a-long-name-of-a-worker-{number}", "ready", "", "it is broken at all ends"
        )
    row = ["minilm.55555555555555555555", "  worker: a-long-name-of-a-worker-{}", "  state: ready"]
    error = ["  error: it is broken at all ends"]
    expected = [line.format(number) for number in range(2) for line in (*row, *error)]
    assert [line.rstrip() for line in text_of(table, 40).splitlines()] == expected
    wide = [line.rstrip() for line in text_of(table, 52).splitlines()]
    assert wide[:2] == [row[0], "  worker: a-long-name-of-a-worker-0  state: ready"]


def test_columns_without_wrap_stay_whole() -> None:
    """A number and its unit stay on one line, as long as the other columns can give way."""
    table = plain_table("error")
    table.add_columns("left", justify="right", no_wrap=True)
    table.add_row("one two three four five", "12.5 s")
    lines = text_of(table, 20).splitlines()
    assert sum("12.5 s" in line for line in lines) == 1
    assert len(lines) > 2


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("Address to listen on.", 40, "Address to listen on"),
        ("Port of the API; 0 takes a free one. More.", 40, "Port of the API; 0 takes a free one"),
        ("Number of inputs in a batch", 20, "Number of inputs in…"),
        ("Queue to serve; the slug of the model's name when not set.", 40, "Queue to serve"),
        ("Timeout of a call to Redis, and of a connection to it.", 28, "Timeout of a call to Redis…"),
        ("unbreakable", 5, "unbreakable…"),
    ],
)
def test_a_text_is_cut_at_a_word(text: str, width: int, expected: str) -> None:
    """The first sentence stays if it fits, or its first clause; otherwise whole words, and a sign of more."""
    assert shorten(text, width) == expected
