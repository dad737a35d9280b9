"""The only way of the commands to the terminal: consoles, and lines of text or JSON.

What a command prints may come from Redis or from clients. Its control characters are escaped here, so that the name of
a key or a queue does not control the operator's terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from shared.process.log_text import printable


class PrintableConsole(Console):
    """A console that escapes control characters in all text that it shows; styles and cursor movements are rich's.

    Lines do not end in blanks, with which rich fills the cells of tables and the lines of wrapped text.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of a renderable."""
        blanks: list[Segment] = []
        for segment in super().render(renderable, options):
            text = "" if segment.control else re.sub(" +(?=\n)", "", printable(segment.text))
            if text.startswith("\n"):
                blanks.clear()
            visible = text.rstrip(" ")
            if visible or segment.control:
                yield from blanks
                blanks.clear()
                yield segment if segment.control else Segment(visible, segment.style)
            if len(visible) < len(text):
                blanks.append(Segment(text[len(visible) :], segment.style))
        yield from blanks


def make_console(*, to_stderr: bool = False) -> PrintableConsole:
    """Returns a console for stdout, or for stderr, that shows numbers and words as they are, without colors."""
    return PrintableConsole(stderr=to_stderr, highlight=False)


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Writes text, and a newline, to stdout or to stderr. Its newlines stay; JSON stays valid."""
    typer.echo(printable(text), err=to_stderr)
