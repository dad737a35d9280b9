"""How often Python looks for garbage that refers to itself."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 2, 2)
"""The first is what saves time. The others are low, so that garbage that outlived two collections is not kept for long:
with (50_000, 20, 100) a gateway with 5,000 requests in flight grew to 280 MB in ten seconds, with these to 190."""


def collect_rarely() -> None:
    """Makes collections rare, and spares them what is there already: call it when everything is imported.

    Requests in flight are many young objects, and Python's default (700 of them) has each looked at again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
