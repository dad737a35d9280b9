"""Which of many equal log lines are written: the first of a kind; those that follow are counted. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

MAX_KINDS = 256
"""Maximum number of kinds that are remembered at a time. Lines of further kinds are counted together, as OTHERS."""

OTHERS = None


class Repeats(NamedTuple):
    """How many lines of a kind were not written, and in which time: since the last line about the kind (s)."""

    kind: Any
    num_lines: int
    over_s: float


class _Window(NamedTuple):
    """Since when lines of a kind are counted (monotonic, s), and how many there were."""

    since: float
    num_lines: int


class LogLimit:
    """Limits how many lines of each kind are written.

    Args:
        interval_s: minimum time between two of them, s.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._windows: dict[Hashable, _Window] = {}

    def admit(self, kind: Hashable, now: float) -> bool:
        """Whether a line is to be written. Otherwise it is counted."""
        if kind not in self._windows and len(self._windows) >= MAX_KINDS:
            self._windows = {each: window for each, window in self._windows.items() if not self._is_over(window, now)}
            if len(self._windows) >= MAX_KINDS:
                kind = OTHERS
                self._windows.setdefault(OTHERS, _Window(now, 0))
        window = self._windows.get(kind)
        if window is None or self._is_over(window, now):
            self._windows[kind] = _Window(now, 0)
            return True
        self._windows[kind] = _Window(window.since, window.num_lines + 1)
        return False

    def take_repeats(self, now: float) -> list[Repeats]:
        """Returns the kinds of which lines were counted since the last call, and counts from zero."""
        windows = self._windows
        self._windows = {
            kind: _Window(now, 0) if window.num_lines else window
            for kind, window in windows.items()
            if not self._is_over(window, now)
        }
        return [Repeats(kind, each.num_lines, now - each.since) for kind, each in windows.items() if each.num_lines]

    def _is_over(self, window: _Window, now: float) -> bool:
        """Whether the next line of a kind is written: counted lines are reported before that."""
        return not window.num_lines and now - window.since >= self._interval_s
