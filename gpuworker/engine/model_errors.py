"""What is done about exceptions of a model: they are reported, and after a passing one an input runs again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from gpuworker.engine.delayed_calls import DelayedCalls
from gpuworker.engine.error_reporter import ErrorReporter
from gpuworker.engine.failures import ModelFailure
from gpuworker.engine.work import BatchResult, EntryTask
from gpuworker.ipc.messages import EntryFailure
from gpuworker.policy.retries import RetryLimits, retry_delay_s


class ErrorOptions(NamedTuple):
    """Where the messages of exceptions go (see ErrorReporter), and how often an input runs again."""

    messages: Literal["off", "log", "client"] = "off"
    retries: RetryLimits = RetryLimits()


DEFAULT_ERROR_OPTIONS = ErrorOptions()


class ModelErrors:
    """Reports the exceptions of a model, and has inputs run again after those that pass.

    Args:
        options: of reports and retries.
        retry_on: the exceptions after which an input runs again.
    """

    def __init__(self, options: ErrorOptions, retry_on: tuple[type[BaseException], ...]) -> None:
        self._reporter = ErrorReporter(options.messages, retry_on)
        self._limits = options.retries
        self._calls = DelayedCalls()
        self._retries = bool(retry_on)

    def start(self) -> None:
        """Starts the thread of the retries, if the model has any."""
        if self._retries:
            self._calls.start()

    def record(self, error: BaseException, result: BatchResult) -> ModelFailure:
        """Reports an exception in the log and in a result; returns what it means."""
        return self._reporter.record(error, result)

    def retry(self, failure: ModelFailure, num_retries: int, deadline: float, function: Callable[[], None]) -> bool:
        """Has a function called after the wait that is due, and returns True; or False: there is no other attempt.

        Args:
            failure: of the last attempt.
            num_retries: how often the input has run again already.
            deadline: of the input (monotonic clock).
            function: the next attempt.
        """
        if not failure.is_transient:
            return False
        delay_s = retry_delay_s(num_retries, self._limits, deadline - time.monotonic())
        if delay_s is None:
            return False
        self._calls.call_after(delay_s, function)
        return True

    def failure_of(self, failure: ModelFailure, task: EntryTask, num_retries: int) -> EntryFailure:
        """Returns how an entry fails. It becomes a dead letter if all retries were in vain."""
        is_dead = failure.is_transient and 0 < self._limits.max_retries <= num_retries
        return failure.of(task, num_retries=num_retries, dead=is_dead)
