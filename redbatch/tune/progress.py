"""Progress of a search: a bar on a terminal, otherwise a line per candidate and round."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from redbatch.bench.request_log import RequestLog
from redbatch.progress import ProgressBar
from redbatch.times import format_duration


class TuneProgress(ProgressBar):
    """Shows the current candidate and the remaining time.

    Args:
        console: where the progress is shown; stderr by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._began_s = time.monotonic()
        # Only calls of the methods draw the bar. A refresh thread would take CPU time from the load at any moment.
        columns = BarColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}")
        super().__init__(*columns, console=console)
        self._bar = self.progress.add_task("starting", total=None, left="")
        self._end_s: float | None = None

    def set_remaining(self, left_s: float) -> None:
        """Sets the approximate remaining time, in seconds."""
        self._end_s = self._elapsed_s() + left_s
        self._draw()

    def set_status(self, text: str) -> None:
        """Shows what runs from now on."""
        self.progress.update(self._bar, description=text)
        self._draw()

    def print_result(self, text: str) -> None:
        """Prints the result of a candidate or a round, unless there is a bar."""
        if not self.console.is_terminal:
            self.print_line(f"{format_duration(self._elapsed_s()):>12}  {text}")

    def show(self, _elapsed_s: float, _log: RequestLog) -> None:
        """Redraws the bar; called regularly while a load runs."""
        self._draw()

    def _draw(self) -> None:
        elapsed_s = self._elapsed_s()
        if self._end_s is not None:
            left_s = max(0.0, self._end_s - elapsed_s)
            left = f"about {format_duration(left_s)} left" if left_s else "almost done"
            self.progress.update(self._bar, total=elapsed_s + left_s, completed=elapsed_s, left=left)
        self.progress.refresh()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s
