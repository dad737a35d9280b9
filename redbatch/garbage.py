"""How often Python looks for garbage that refers to itself. A process that serves leaves hardly any."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 100)


def collect_rarely() -> None:
    """Makes collections rare, and spares them what is there already: call it when everything is imported.

    Requests in flight are many young objects, and Python's default (700 of them) has each looked at again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
