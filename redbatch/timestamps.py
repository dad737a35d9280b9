"""Moments as people read them."""

from __future__ import annotations

import time


def moment(ms: float) -> str:
    """Returns a time (ms of the epoch) as date and time, UTC; a question mark for one that no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))
    except (OverflowError, ValueError, OSError):
        return "?"
