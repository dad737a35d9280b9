"""Log lines that may come by the thousand: the first of a kind is written, those that follow are counted."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from structlog.contextvars import get_contextvars

from shared.process.log_limit import OTHERS, LogLimit

INTERVAL_S = 10.0
"""Time after which one line says how many lines of a kind followed the first."""

CONTEXT_FIELDS = ("shard", "redis")
"""Fields of a kind that the context of a task may have: they name the Redis that it works with."""


class LimitedLog:
    """Writes the first line of each kind at once, and every INTERVAL_S one with `repeated` and `in_s` for the others.

    A kind is the level, the event and the fields of a line. Fields of a kind must have few values: clients must not
    choose them. Any thread may write. At its exit, the process writes what it has counted until then.
    """

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._limit = LogLimit(INTERVAL_S)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.flush)

    def write(
        self, level: int, event: str, details: Callable[[], Mapping[str, Any]] | None = None, **fields: object
    ) -> None:
        """Writes a line, or counts it.

        Args:
            level: as in the module logging.
            event: the message.
            details: returns further fields of the line, which differ among lines of a kind; or the value of one of the
                kind, of which that has the general form.
            fields: of the kind; their values are hashable.
        """
        context = get_contextvars()
        fields = {name: context[name] for name in CONTEXT_FIELDS if name in context} | fields
        kind = (level, event, tuple(fields.items()))
        with self._lock:
            is_first = self._limit.admit(kind, time.monotonic())
            if not is_first and self._timer is None:
                self._timer = threading.Timer(INTERVAL_S, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_first:
            self._log.log(level, event, **{**fields, **({} if details is None else details())})

    def flush(self) -> None:
        """Writes a line for each kind of which lines were counted."""
        with self._lock:
            timer, self._timer = self._timer, None
            repeats = self._limit.take_repeats(time.monotonic())
        if timer is not None:
            timer.cancel()
        for kind, num_lines, over_s in repeats:
            counts = {"repeated": num_lines, "in_s": round(over_s, 1)}
            if kind is OTHERS:
                self._log.warning("lines of too many kinds were not written", **counts)
            else:
                level, event, fields = kind
                self._log.log(level, event, **dict(fields), **counts)
