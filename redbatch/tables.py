"""The look of tables and labelled lines that commands print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from shared.process.log_text import printable_line

GAPS = (2, 1)
"""Spaces between two columns; the smaller number on a narrow console."""


class _Column(NamedTuple):
    heading: str
    justify: Literal["left", "right"]
    no_wrap: bool
    min_width: int


class PlainTable:
    """A table without a frame. It never breaks a word.

    Cells wrap at spaces, except those of columns with `no_wrap`. On a console that is too narrow for the longest words,
    each row is its first cell, with the other cells and their headings under it.
    """

    def __init__(self) -> None:
        self._columns: list[_Column] = []
        self._rows: list[tuple[list[Text], str]] = []

    def add_columns(
        self, *headings: str, justify: Literal["left", "right"] = "left", no_wrap: bool = False, min_width: int = 0
    ) -> None:
        """Adds columns with these headings. A `min_width` keeps the layout while the cells change."""
        self._columns += [_Column(heading, justify, no_wrap, min_width) for heading in headings]

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Adds a row with a cell for each column: a text in one line, or any Text."""
        self._rows.append(([_as_text(cell) for cell in cells], style))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields a table or, if the console is too narrow for it, a block of lines for each row."""
        gap, widths = next(
            ((gap, widths) for gap in GAPS if (widths := self._fit(options.max_width, gap)) is not None), (0, None)
        )
        if widths is None:
            yield from self._blocks(options.max_width)
            return
        table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style=Style(bold=True))
        for column, width in zip(self._columns, widths, strict=True):
            table.add_column(column.heading, justify=column.justify, width=width)
        for cells, style in self._rows:
            table.add_row(*cells, style=style)
        yield table

    def _fit(self, max_width: int, gap: int) -> list[int] | None:
        """Returns the width of each column, so that words are whole in `max_width`; None if it is too narrow."""
        least, widths = [], []
        for index, column in enumerate(self._columns):
            cells = [column.heading, *(cells[index].plain for cells, _ in self._rows)]
            widths.append(max(column.min_width, *map(_line_width, cells)))
            least.append(widths[-1] if column.no_wrap else max(column.min_width, *map(_word_width, cells)))
        available = max_width - gap * (len(widths) - 1)
        if sum(least) > available:
            return None
        while sum(widths) > available:
            widest = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
            widths[widest] -= 1
        return widths

    def _blocks(self, max_width: int) -> Iterator[Text]:
        for cells, style in self._rows:
            lines = [cells[0].copy()]
            labelled = zip(self._columns[1:], cells[1:], strict=True)
            for value in [
                Text.assemble("  ", (f"{column.heading}: ", "bold"), cell) for column, cell in labelled if cell
            ]:
                if len(lines) > 1 and lines[-1].cell_len + value.cell_len <= max_width:
                    lines[-1].append_text(value)
                else:
                    lines.append(value)
            for line in lines:
                line.stylize(style)
                yield line


def _as_text(cell: str | Text) -> Text:
    """Returns a cell; one that is a `str` may come from anybody, and its newlines would look like further rows."""
    return Text(printable_line(cell)) if isinstance(cell, str) else cell


def _line_width(text: str) -> int:
    return max((cell_len(line) for line in text.split("\n")), default=0)


def _word_width(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def plain_table(*headings: str) -> PlainTable:
    """Returns a table without a frame, whose first columns have these headings."""
    table = PlainTable()
    table.add_columns(*headings)
    return table


def labelled_line(label: str, value: str | Text, width: int) -> Text:
    """Returns an indented line: the label in bold, padded to `width` columns, two spaces, the value in one line."""
    return Text.assemble((f"  {label:<{width}}  ", "bold"), _as_text(value))


def shorten(text: str, width: int) -> str:
    """Returns the first sentence of a text, or the clause it begins with; if neither fits, whole words and "…"."""
    sentence = text.partition(". ")[0].removesuffix(".")
    clause = sentence.partition(";")[0]
    for part in (sentence, clause):
        if cell_len(part) <= width:
            return part
    words = clause.split(" ")
    while len(words) > 1 and cell_len(" ".join(words)) + 1 > width:
        words.pop()
    return f"{' '.join(words).rstrip(',:')}…"
