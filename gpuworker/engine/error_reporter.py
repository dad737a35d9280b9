"""Reports what the model raises: in the log, with a traceback, and by type in the result of the batch."""

from __future__ import annotations

import logging
import traceback
from typing import Literal

from gpuworker.backends.base import InputRefusedError, OneInputError
from gpuworker.engine.failures import ModelFailure, model_failure
from gpuworker.engine.work import BatchResult
from shared.process.limited_log import LimitedLog
from shared.process.tracebacks import describe_briefly

MAX_CHARS = 8_000
HIDDEN_MESSAGE = "not logged: it may quote an input; --error-messages log adds it"


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
        self._log = LimitedLog()  # a failing model raises an exception for each batch

    def record(self, error: BaseException, result: BatchResult) -> ModelFailure:
        """Logs an exception, unless it is a refusal, and adds its type to a result; returns what it means."""
        index: int | None = None
        if isinstance(error, OneInputError):
            index, error = error.index, error.cause
        if not isinstance(error, InputRefusedError):
            result.errors.append(type(error).__name__)
            self._write(error)
        failure = model_failure(error, self._retry_on, show_message=self._messages == "client")
        return failure._replace(input_index=index, exception=type(error).__name__)

    def flush(self) -> None:
        """Logs how many exceptions were not logged since the last line about them."""
        self._log.flush()

    def _write(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        is_hidden = self._messages == "off"
        hint = {"message": HIDDEN_MESSAGE} if is_hidden else {}
        self._log.write(
            logging.ERROR,
            "the model raised an exception",
            lambda: {**hint, "exception": describe_briefly(error) if is_hidden else _describe(error)},
            error=type(error).__name__,
            place=place,
        )


def _describe(error: BaseException) -> str:
    """Returns the traceback of an exception with its message; the end of it, if it is long."""
    return "".join(traceback.format_exception(error)).rstrip()[-MAX_CHARS:]
