"""How often Python's garbage collector looks for reference cycles."""

from __future__ import annotations

import gc

THRESHOLD = 50_000
"""Python's default is 700 new objects, which scans every request in flight again and again."""


def collect_rarely() -> None:
    """Makes collections rare, and excludes existing objects from them: call it when everything is imported.

    Until then, a process may have disabled collections.
    Requests must therefore leave no reference cycles behind: at thousands a second these would fill the memory first.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD)
    gc.enable()
