"""Points in time as people read them."""

from __future__ import annotations

import time


def format_timestamp(ms: float) -> str:
    """Returns a time in ms since the epoch as date and time in UTC; "?" if it is out of the range of the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))
    except (OverflowError, ValueError, OSError):
        return "?"
