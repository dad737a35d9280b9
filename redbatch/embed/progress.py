"""How far a file is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from redbatch.progress import ProgressBar, format_duration

LINE_EVERY_S = 5.0


class EmbedProgress(ProgressBar):
    """Shows how many rows are done, how many come in a second, and how long the rest will take.

    Args:
        rows: of the file.
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
        self._began = time.monotonic()
        self._first: int | None = None
        self._line_at = self._began + LINE_EVERY_S

    def told(self, number: int, done: int) -> None:
        """Takes in how many rows of a slice are done."""
        self._done[number] = max(done, self._done.get(number, 0))
        total = sum(self._done.values())
        if self._first is None:
            self._first = total
        now = time.monotonic()
        rate = (total - self._first) / max(1e-3, now - self._began)
        self.progress.update(self._task, completed=total, rate=f"{rate:,.0f} texts/s")
        if not self.console.is_terminal and now >= self._line_at:
            self._line_at = now + LINE_EVERY_S
            left = f", {format_duration((self._rows - total) / rate)} left" if rate else ""
            self.tell(f"{total:,} of {self._rows:,}, {rate:,.0f} texts/s{left}")
