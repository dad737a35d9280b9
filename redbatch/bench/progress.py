"""How far the load is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from redbatch.bench.settings import BenchSettings
from redbatch.progress import ProgressBar

LINE_EVERY_S = 5.0


class LoadProgress(ProgressBar):
    """Shows it."""

    def __init__(self, settings: BenchSettings, console: Console | None = None) -> None:
        self._settings = settings
        self._before: tuple[float, int] | None = None
        self._next_line_s = LINE_EVERY_S
        # It is drawn when `show` is called and never by a thread, which would take the load's time at any moment.
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}")
        super().__init__(*columns, console=console)
        self._bar = self.progress.add_task("connecting", total=None, said="")

    def show(self, elapsed_s: float, finished: int, errors: int) -> None:
        """Draws the bar anew, or prints a line when it is time for one."""
        said = f"{self._rate(elapsed_s, finished):,.0f} requests/s" + (f", {errors:,} errors" if errors else "")
        if self.console.is_terminal:
            total, done = self._part(elapsed_s, finished)
            self.progress.update(
                self._bar, description=_phase(elapsed_s, total, done), total=total, completed=done, said=said
            )
            self.progress.refresh()
        elif elapsed_s >= self._next_line_s:
            self._next_line_s += LINE_EVERY_S
            self.console.print(f"{elapsed_s:.0f} s: {finished:,} requests, {said}", soft_wrap=True)

    def _rate(self, elapsed_s: float, finished: int) -> float:
        """Returns requests a second since the last look."""
        before, self._before = self._before, (elapsed_s, finished)
        if before is None or elapsed_s <= before[0]:
            return 0.0
        return (finished - before[1]) / (elapsed_s - before[0])

    def _part(self, elapsed_s: float, finished: int) -> tuple[float, float]:
        """Returns how much there is to do and how much is done: seconds, or requests (the few of the warmup too)."""
        if self._settings.requests is not None:
            return float(self._settings.requests), float(min(finished, self._settings.requests))
        warmup_s = self._settings.warmup_s
        return warmup_s + (self._settings.duration_s or 0.0), elapsed_s + warmup_s


def _phase(elapsed_s: float, total: float, done: float) -> str:
    if elapsed_s < 0:
        return "warmup"
    return "measuring" if done < total else "last answers"
