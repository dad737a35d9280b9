"""How far the search is: a bar on a terminal, a line for each setting elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

MINUTE_S = 60


def as_time(seconds: float) -> str:
    """Returns a duration as people say it."""
    minutes, rest = divmod(round(seconds), MINUTE_S)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Watch:
    """Shows it on stderr: stdout is for the result.

    Args:
        console: where to show it.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._began_s = time.monotonic()
        # It is drawn when it is told something and never by a thread, which would take the load's time at any moment.
        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=self._console,
            auto_refresh=False,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._bar = self._progress.add_task("starting", total=None, left="")
        self._end_s: float | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def tell(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, soft_wrap=True, markup=False)

    def expect(self, left_s: float) -> None:
        """Takes in how long it will take from now on, about."""
        self._end_s = self._elapsed_s() + left_s
        self._draw()

    def say(self, text: str) -> None:
        """Says what runs from now on."""
        self._progress.update(self._bar, description=text)
        self._draw()

    def finished(self, text: str) -> None:
        """Says what came of a setting, where there is no bar."""
        if not self._console.is_terminal:
            self.tell(f"{as_time(self._elapsed_s()):>12}  {text}")

    def show(self, _elapsed_s: float, _finished: int, _errors: int) -> None:
        """Is called now and then while a load runs."""
        self._draw()

    def _draw(self) -> None:
        elapsed_s = self._elapsed_s()
        if self._end_s is not None:
            left_s = max(0.0, self._end_s - elapsed_s)
            left = f"about {as_time(left_s)} left" if left_s else "any moment"
            self._progress.update(self._bar, total=elapsed_s + left_s, completed=elapsed_s, left=left)
        self._progress.refresh()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s
