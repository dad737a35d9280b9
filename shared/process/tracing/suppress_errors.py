"""An error in the creation of spans costs only the spans."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import structlog

log = structlog.get_logger()

P = ParamSpec("P")


def suppress_errors(function: Callable[P, None]) -> Callable[P, None]:
    """Makes a function of tracing raise nothing: the first error is logged with its traceback, later ones are not."""
    reported = False

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal reported
        try:
            function(*args, **kwargs)
        except Exception:  # whatever the error, requests must be answered
            if not reported:
                reported = True
                log.exception("spans are lost", part=function.__qualname__)

    return guarded
