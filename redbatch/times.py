"""Durations as people read and write them."""

from __future__ import annotations

import re

MINUTE_S = 60
SHORTEST_S = 0.01
"""What took less is shown as this."""

AGE_WIDTH = len("59 min")
"""The width of an age in columns, up to 9,999 days."""

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def format_duration(seconds: float) -> str:
    """Returns a duration as text: "0.2 s", "59 s", "12 min 05 s"."""
    if 0 < seconds < 1:
        return f"{max(seconds, SHORTEST_S):.1g} s"
    minutes, remainder_s = divmod(round(seconds), MINUTE_S)
    return f"{minutes} min {remainder_s:02} s" if minutes else f"{remainder_s} s"


def format_age(seconds: float) -> str:
    """Returns an age in its largest unit, rounded down: "59 s", "12 min", "47 h", "3 d"."""
    for unit, size_s, max_units in (("s", 1.0, MINUTE_S), ("min", 60.0, 60), ("h", 3600.0, 48)):
        if seconds < size_s * max_units:
            return f"{int(seconds / size_s)} {unit}"
    return f"{int(seconds / 86400)} d"


def parse_duration(text: str) -> float:
    """Returns a duration such as `500ms`, `10s`, `2m` or `1h` in seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("write a duration like 500ms, 10s or 2m")
    return float(match[1]) * UNITS_S[match[2]]
