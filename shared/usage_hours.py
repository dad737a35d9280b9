"""The hours of a report: the time that `from` and `to` name, and how hours and days are shown. All times are UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

HOUR_S = 3_600
DEFAULT_HOURS = 24

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}(:\d{2}(:\d{2})?)?(Z|\+00:00)?)?")
TIME_WORDS = "a time in UTC such as 2026-11-26, 2026-11-26T14 or 2026-11-26T14:00:00Z"


class UsageRange(NamedTuple):
    """Whole hours, by their number since the epoch: from `first` up to `end`, which is not part of them."""

    first: int
    end: int

    @property
    def names(self) -> tuple[str, str]:
        """The times of both, as a report shows them."""
        return name_of_hour(self.first), name_of_hour(self.end)


def parse_range(since: str | None, until: str | None, now_s: float, max_hours: int) -> UsageRange:
    """Returns the hours of a report at a time (s since the epoch): by default the last 24, with the present one.

    `since` is rounded down to an hour, `until` up. Hours that no longer or do not yet exist are left out.

    Raises:
        ValueError: a time is not one, or `until` is not after `since`; the message says what to write.
    """
    present = int(now_s) // HOUR_S
    end = present + 1 if until is None else -(-_parse_time("to", until) // HOUR_S)
    first = end - DEFAULT_HOURS if since is None else _parse_time("from", since) // HOUR_S
    if end <= first:
        raise ValueError("to: it must be after `from`.")
    first, end = max(first, present - max_hours), min(end, present + 1)
    return UsageRange(first, max(first, end))


def name_of_hour(hour: int) -> str:
    """Returns the time at which an hour begins, such as 2026-11-26T14:00:00Z."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_of_day(hour: int) -> str:
    """Returns the day of an hour, such as 2026-11-26."""
    return name_of_hour(hour)[:10]


def _parse_time(name: str, text: str) -> int:
    """Returns a time in seconds since the epoch. Raises ValueError."""
    try:
        time = datetime.fromisoformat(text.removesuffix("Z")) if _TIME.fullmatch(text) else None
    except ValueError:  # the 30th of February
        time = None
    if time is None:
        raise ValueError(f"{name}: send {TIME_WORDS}.")
    return int(time.replace(tzinfo=UTC).timestamp())
