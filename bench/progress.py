"""How far the benchmark is: a bar on a terminal, a line for each measurement elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.text import Text

from redbatch.progress import ProgressBar, format_duration

REFRESH_PER_S = 1
"""The bar is drawn by a thread, and what it needs is taken from what is measured: next to nothing at this rate."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """How far it is: planned seconds of all, of what is done, of the step that runs; and what took until this step."""

    planned_s: float
    done_s: float
    step_s: float
    took_s: float

    def left_s(self, elapsed_s: float) -> float:
        """Returns about how long it will take, at the speed so far. A step that is late does not shorten the others."""
        speed = self.took_s / self.done_s if self.done_s > 0 else 1.0
        step_left_s = max(0.0, self.step_s * speed - (elapsed_s - self.took_s))
        return step_left_s + (self.planned_s - self.done_s - self.step_s) * speed


class Watch(ProgressBar):
    """Shows it on stderr.

    Args:
        planned_s: how long all of it takes, about.
        console: where to show it.
    """

    def __init__(self, planned_s: float, console: Console | None = None) -> None:
        self._remaining = Remaining(planned_s, 0.0, 0.0, 0.0)
        self._began_s = time.monotonic()
        columns = BarColumn(), _Left(self), TextColumn("{task.description}")
        super().__init__(*columns, console=console, refresh_per_s=REFRESH_PER_S)
        self._bar = self.progress.add_task("", total=planned_s)

    @property
    def left(self) -> str:
        """How long it will take from now on."""
        return f"{format_duration(self._remaining.left_s(self._elapsed_s()))} left"

    def begin(self, step_s: float) -> None:
        """Notes that a step begins, for which so much is planned, and that the one before is done."""
        before = self._remaining
        self._remaining = Remaining(before.planned_s, before.done_s + before.step_s, step_s, self._elapsed_s())
        self.progress.update(self._bar, completed=self._remaining.done_s)

    def say(self, text: str) -> None:
        """Tells what runs from now on."""
        if self.console.is_terminal:
            self.progress.update(self._bar, description=text)
        else:
            self.tell(f"{format_duration(self._elapsed_s()):>12}  {text} ({self.left})")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


class _Left(ProgressColumn):
    """Counts down."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def render(self, task: Task) -> Text:  # noqa: ARG002 - there is one
        return Text(self._watch.left)
