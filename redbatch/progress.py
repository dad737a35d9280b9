"""What the progress displays of long commands share: a bar on a terminal, and durations as people say them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn

MINUTE_S = 60


def as_time(seconds: float) -> str:
    """Returns a duration as people say it."""
    minutes, rest = divmod(round(seconds), MINUTE_S)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Bar:
    """A bar on stderr, as stdout is for the result. It stands as long as the block, and only on a terminal.

    Args:
        columns: of the bar.
        console: where to show it.
        refresh_per_s: how often a thread draws it; None: it is drawn when `progress.refresh` is called.
    """

    def __init__(
        self, *columns: ProgressColumn, console: Console | None = None, refresh_per_s: float | None = None
    ) -> None:
        self.console = console or Console(stderr=True, highlight=False)
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

    def tell(self, text: str) -> None:
        """Prints a line that stays."""
        self.console.print(text, soft_wrap=True, markup=False)
