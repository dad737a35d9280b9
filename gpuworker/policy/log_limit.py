"""Which of many equal events are logged: the first, and then one in each interval. Pure."""

from __future__ import annotations

MAX_KEYS = 64
"""Maximum number of different events that are remembered. The one that was logged longest ago is forgotten first."""


class LogLimit:
    """Limits how often events with the same key are logged.

    Args:
        interval_s: minimum time between two of them, s.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._logged: dict[object, tuple[float, int]] = {}

    def admit(self, key: object, now: float) -> int | None:
        """Returns None if an event is not to be logged; otherwise the number of equal ones that were not, before it."""
        logged_at, suppressed = self._logged.get(key, (None, 0))
        if logged_at is not None and now - logged_at < self._interval_s:
            self._logged[key] = (logged_at, suppressed + 1)
            return None
        self._logged.pop(key, None)
        if len(self._logged) >= MAX_KEYS:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = (now, 0)
        return suppressed
