"""Progress of a benchmark: a bar on a terminal, otherwise a line per measurement."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.text import Text

from redbatch.progress import ProgressBar
from redbatch.times import format_duration

REFRESH_PER_S = 1
"""A thread draws the bar and takes CPU from the servers that are measured: at this rate, a negligible share."""


@dataclass(frozen=True, slots=True)
class RemainingTime:
    """Planned seconds of all steps, of finished ones, of the current one; and the real time before this one."""

    planned_s: float
    done_s: float
    step_s: float
    took_s: float

    def left_s(self, elapsed_s: float) -> float:
        """Returns an estimate of the remaining time at the speed so far. A late step does not shorten the others."""
        speed = self.took_s / self.done_s if self.done_s > 0 else 1.0
        step_left_s = max(0.0, self.step_s * speed - (elapsed_s - self.took_s))
        return step_left_s + (self.planned_s - self.done_s - self.step_s) * speed


class BenchmarkProgress(ProgressBar):
    """Shows progress on stderr.

    Args:
        planned_s: estimated duration of all steps.
        console: the console to draw on; stderr by default.
    """

    def __init__(self, planned_s: float, console: Console | None = None) -> None:
        self._remaining = RemainingTime(planned_s, 0.0, 0.0, 0.0)
        self._began_s = time.monotonic()
        columns = BarColumn(), _Left(self), TextColumn("{task.description}")
        super().__init__(*columns, console=console, refresh_per_s=REFRESH_PER_S)
        self._bar = self.progress.add_task("", total=planned_s)

    @property
    def left(self) -> str:
        """The remaining time, as text."""
        return f"{format_duration(self._remaining.left_s(self._elapsed_s()))} left"

    def begin(self, step_s: float) -> None:
        """Marks the step before as finished, and starts a step with this planned duration."""
        before = self._remaining
        self._remaining = RemainingTime(before.planned_s, before.done_s + before.step_s, step_s, self._elapsed_s())
        self.progress.update(self._bar, completed=self._remaining.done_s)

    def show(self, text: str) -> None:
        """Shows the name of the current measurement."""
        if self.console.is_terminal:
            self.progress.update(self._bar, description=text)
        else:
            self.print_line(f"{format_duration(self._elapsed_s()):>12}  {text} ({self.left})")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


class _Left(ProgressColumn):
    """Column with the remaining time."""

    def __init__(self, bar: BenchmarkProgress) -> None:
        super().__init__()
        self._bar = bar

    def render(self, task: Task) -> Text:  # noqa: ARG002 - the bar has one task
        return Text(self._bar.left)
