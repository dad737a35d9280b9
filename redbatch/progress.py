"""The progress bar of long commands."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn

from redbatch.terminal import make_console


class ProgressBar:
    """A progress bar on stderr, because stdout is for the result. A context manager; visible only on a terminal.

    Args:
        columns: the columns of the bar.
        console: where the bar is shown; stderr by default.
        refresh_per_s: how many times per second a thread draws the bar; None: only `progress.refresh` draws it.
    """

    def __init__(
        self, *columns: ProgressColumn, console: Console | None = None, refresh_per_s: float | None = None
    ) -> None:
        self.console = console or make_console(to_stderr=True)
        self.progress = Progress(
            *columns,
            console=self.console,
            auto_refresh=refresh_per_s is not None,
            refresh_per_second=refresh_per_s or 1,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def print_line(self, text: str) -> None:
        """Prints a permanent line."""
        self.console.print(text, soft_wrap=True, markup=False)
