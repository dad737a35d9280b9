"""A day's load: from one at night to ten in the afternoon, and in the evening a sudden one."""

from __future__ import annotations

import math

DAY_S = 86_400.0
PEAK = 10.0
HOUR_S = 3_600.0
NIGHT_ENDS, TOP, NIGHT_BEGINS = 6.0, 14.0, 22.0
SPIKE_AT, SPIKE_S, SPIKE_RISE_S, SPIKE = 20.0, 900.0, 30.0, 8.0
"""At eight in the evening, within half a minute, for a quarter of an hour."""


def level(now: float) -> float:
    """Returns how many times the night's load there is, `now` seconds after midnight."""
    hour = now / HOUR_S
    usual = 1.0
    if NIGHT_ENDS < hour < NIGHT_BEGINS:
        half = TOP - NIGHT_ENDS
        usual += (PEAK - 1) * math.cos((hour - TOP) / half * math.pi / 2) ** 2
    since = now - SPIKE_AT * HOUR_S
    if not 0 <= since < SPIKE_S:
        return usual
    return max(usual, 1 + (SPIKE - 1) * min(1.0, since / SPIKE_RISE_S))
