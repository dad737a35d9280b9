"""Progress of an embedding run: a bar on a terminal, otherwise a line every LINE_EVERY_S."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from redbatch.progress import ProgressBar
from redbatch.times import format_duration

LINE_EVERY_S = 5.0


class EmbedProgress(ProgressBar):
    """Shows the number of finished rows, the rows per second and the remaining time.

    Args:
        rows: number of rows of the file.
    """

    def __init__(self, rows: int, console: Console | None = None) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
        )
        super().__init__(*columns, console=console, refresh_per_s=4)
        self._rows = rows
        self._done: dict[int, int] = {}
        self._task = self.progress.add_task("", total=rows, rate="")
        self._started = time.monotonic()
        self._first_total: int | None = None
        self._next_line_at = self._started + LINE_EVERY_S

    def update(self, number: int, done: int) -> None:
        """Records that `done` rows of a slice are finished, and refreshes the display."""
        self._done[number] = max(done, self._done.get(number, 0))
        total = sum(self._done.values())
        if self._first_total is None:
            self._first_total = total
        now = time.monotonic()
        rate = (total - self._first_total) / max(1e-3, now - self._started)
        self.progress.update(self._task, completed=total, rate=f"{rate:,.0f} texts/s")
        if not self.console.is_terminal and now >= self._next_line_at:
            self._next_line_at = now + LINE_EVERY_S
            remaining = f", {format_duration((self._rows - total) / rate)} left" if rate else ""
            self.print_line(f"{total:,} of {self._rows:,}, {rate:,.0f} texts/s{remaining}")
