"""Whatever goes wrong where spans are made costs the spans alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import structlog

log = structlog.get_logger()

P = ParamSpec("P")


def harmless(part: Callable[P, None]) -> Callable[P, None]:
    """Has a part of tracing raise nothing: the first error is told, with its traceback, and no other."""
    told = False

    @wraps(part)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal told
        try:
            part(*args, **kwargs)
        except Exception:  # whatever it is, requests are to be answered
            if not told:
                told = True
                log.exception("spans are lost", part=part.__qualname__)

    return guarded
