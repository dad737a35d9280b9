"""Progress of a load: a bar on a terminal, otherwise a line every LINE_EVERY_S."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from redbatch.bench.request_log import RequestLog
from redbatch.bench.settings import BenchSettings
from redbatch.progress import ProgressBar

LINE_EVERY_S = 5.0
PROGRESS_INTERVAL_S = 0.5


class ProgressDisplay(Protocol):
    """Receives the progress of a load."""

    def show(self, elapsed_s: float, log: RequestLog) -> None:
        """Shows the progress. The time is relative to the start of the measurement, and negative in the warmup.

        Called every PROGRESS_INTERVAL_S.
        """


class LoadProgress(ProgressBar):
    """Shows the phase, the request rate and the number of errors."""

    def __init__(self, settings: BenchSettings, console: Console | None = None) -> None:
        self._settings = settings
        self._previous: tuple[float, int] | None = None
        self._next_line_s = LINE_EVERY_S
        # Only calls of `show` draw the bar. A refresh thread would take CPU time from the load at any moment.
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")
        super().__init__(*columns, console=console)
        self._bar = self.progress.add_task("connecting", total=None, text="")

    def show(self, elapsed_s: float, log: RequestLog) -> None:
        """Redraws the bar, or prints a line if one is due: its figures are of what is measured, as in the result."""
        if self.console.is_terminal:
            total, done = self._total_and_done(elapsed_s, log.measured)
            errors = log.errors if elapsed_s < 0 else log.measured_errors
            text, phase = _text(self._rate(elapsed_s, len(log)), errors), _phase(elapsed_s, total, done)
            self.progress.update(self._bar, description=phase, total=total, completed=done, text=text)
            self.progress.refresh()
        elif elapsed_s >= self._next_line_s:
            self._next_line_s += LINE_EVERY_S
            text = f"{log.measured:,} requests, {_text(log.measured / elapsed_s, log.measured_errors)}"
            self.console.print(f"{elapsed_s:.0f} s: {text}", soft_wrap=True)

    def _rate(self, elapsed_s: float, finished: int) -> float:
        """Returns the requests per second since the previous bar."""
        previous, self._previous = self._previous, (elapsed_s, finished)
        if previous is None or elapsed_s <= previous[0]:
            return 0.0
        return (finished - previous[1]) / (elapsed_s - previous[0])

    def _total_and_done(self, elapsed_s: float, measured: int) -> tuple[float, float]:
        """Returns the total and the finished amount: seconds, or requests."""
        if self._settings.requests is not None:
            return float(self._settings.requests), float(min(measured, self._settings.requests))
        warmup_s = self._settings.warmup_s
        return warmup_s + (self._settings.duration_s or 0.0), elapsed_s + warmup_s


def _text(rate: float, errors: int) -> str:
    return f"{rate:,.0f} requests/s" + (f", {errors:,} errors" if errors else "")


def _phase(elapsed_s: float, total: float, done: float) -> str:
    if elapsed_s < 0:
        return "warmup"
    return "measuring" if done < total else "waiting for answers"
