"""How often Python looks for garbage that refers to itself."""

from __future__ import annotations

import gc

THRESHOLD = 50_000
"""Python's default is 700 new objects, and has each request in flight looked at again and again."""


def collect_rarely() -> None:
    """Makes collections rare, and spares them what is there already: call it when everything is imported.

    So nothing that each request leaves behind may be a circle: at thousands a second these would fill the memory first.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD)
