"""Reports what the model raises: in the log, with a traceback, and by type in the result of the batch."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Literal

import structlog

from gpuworker.backends.base import InputRefusedError
from gpuworker.engine.failures import ModelFailure, model_failure
from gpuworker.engine.work import BatchResult
from gpuworker.policy.log_limit import LogLimit

log = structlog.get_logger()

LOG_INTERVAL_S = 10.0
"""Minimum time between two log lines about the same exception: a failing model raises one for each batch."""

MAX_FRAMES = 20
MAX_CHARS = 8_000
MAX_CAUSES = 4


class ErrorReporter:
    """Logs and counts the exceptions of a model.

    Args:
        messages: where the messages of exceptions go, which may quote inputs: nowhere, to the log, or to the log and
            the client.
        retry_on: the exceptions after which an input runs again.
    """

    def __init__(
        self, messages: Literal["off", "log", "client"] = "off", retry_on: tuple[type[BaseException], ...] = ()
    ) -> None:
        self._messages = messages
        self._retry_on = retry_on
        self._limit = LogLimit(LOG_INTERVAL_S)
        self._lock = threading.Lock()

    def record(self, error: Exception, result: BatchResult) -> ModelFailure:
        """Logs an exception, unless it is a refusal, and adds its type to a result; returns what it means."""
        if not isinstance(error, InputRefusedError):
            result.errors.append(type(error).__name__)
            self._log(error)
        return model_failure(error, self._retry_on, show_message=self._messages == "client")

    def _log(self, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno) if frames else None
        with self._lock:
            suppressed = self._limit.admit((type(error), place), time.monotonic())
        if suppressed is None:
            return
        text = describe_briefly(error) if self._messages == "off" else _describe(error)
        counts = {"suppressed": suppressed} if suppressed else {}
        log.error("the model raised an exception", error=type(error).__name__, exception=text, **counts)


def describe_briefly(error: BaseException) -> str:
    """Returns the frames and the type of an exception, and of those that caused it; without messages and source lines.

    A message may quote an input; a frame names a file, a line and a function.
    """
    chain: list[BaseException] = []
    each: BaseException | None = error
    # By identity: an exception of the user's may compare its fields, and raise.
    while each is not None and not any(each is known for known in chain) and len(chain) < MAX_CAUSES:
        chain.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    parts = [
        f"{type(each).__name__} at\n"
        + "\n".join(
            f"  {frame.filename}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(each.__traceback__)[-MAX_FRAMES:]
        )
        for each in chain
    ]
    return "\ncaused by ".join(parts)


def _describe(error: Exception) -> str:
    """Returns the traceback of an exception with its message; the end of it, if it is long."""
    return "".join(traceback.format_exception(error)).rstrip()[-MAX_CHARS:]
