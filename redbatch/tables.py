"""The look of tables and labelled lines that commands print."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text


def plain_table() -> Table:
    """Returns a table without a frame: columns are one space apart."""
    return Table(box=None, pad_edge=False, padding=(0, 1))


def labelled_line(label: str, value: str | Text, width: int) -> Text:
    """Returns an indented line: the label in bold, padded to `width` columns, two spaces, and the value."""
    return Text.assemble((f"  {label:<{width}}  ", "bold"), value)
