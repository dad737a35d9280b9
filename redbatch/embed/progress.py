"""Progress of an embedding run: a bar on a terminal, otherwise a line every LINE_EVERY_S."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from redbatch.progress import ProgressBar
from redbatch.times import format_duration

LINE_EVERY_S = 5.0


class EmbedProgress(ProgressBar):
    """Shows the number of finished rows, the rows per second and the remaining time.

    Args:
        rows: number of rows of the file.
        console: stderr by default.
        clock: monotonic time, s.
    """

    def __init__(self, rows: int, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
        super().__init__(*columns, console=console, refresh_per_s=4)
        self._rows = rows
        self._done: dict[int, int] = {}
        self._task = self.progress.add_task("", total=rows, rate="")
        self._clock = clock
        self._started = clock()
        self._num_skipped = 0
        self._next_line_at = self._started + LINE_EVERY_S

    def skip(self, number: int, rows: int) -> None:
        """Records the rows of a slice that were finished before this run: the rate is that of this run."""
        self._num_skipped += rows
        self.update(number, rows)

    def update(self, number: int, done: int) -> None:
        """Records that `done` rows of a slice are finished, and refreshes the display."""
        self._done[number] = max(done, self._done.get(number, 0))
        total = sum(self._done.values())
        now = self._clock()
        rate = (total - self._num_skipped) / max(1e-3, now - self._started)
        shown = f"{rate:,.0f} texts/s" + (f", {format_duration((self._rows - total) / rate)} left" if rate else "")
        self.progress.update(self._task, completed=total, rate=shown)
        if not self.console.is_terminal and now >= self._next_line_at:
            self._next_line_at = now + LINE_EVERY_S
            self.print_line(f"{total:,} of {self._rows:,}, {shown}")
