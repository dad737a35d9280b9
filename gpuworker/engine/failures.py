"""What an exception of the model means for the entry that it fails, and for later batches."""

from __future__ import annotations

from typing import NamedTuple

from gpuworker.backends.base import InputRefusedError, InputTooLongError, ModelOutputError, UnsupportedError
from gpuworker.engine.work import EntryTask
from gpuworker.ipc.messages import EntryFailure
from shared.errors import DeadlineExceededError, InputFailedError, InvalidRequestError
from shared.messages import TooLong

MAX_MESSAGE_CHARS = 500


class ModelFailure(NamedTuple):
    """What remains of an exception of the model. The exception itself would keep the memory that the run has allocated.

    Attributes:
        code: of shared.errors.
        message: for the client.
        is_out_of_memory: whether there was no memory for the run.
        is_transient: whether the class says that another attempt may succeed.
        input_index: index, in its entry, of the input at fault; None if it is not known.
        exception: its type.
        too_long: of an input that is too long, how long it is.
        is_loggable: whether the message quotes no text of a client.
    """

    code: str
    message: str
    is_out_of_memory: bool
    is_transient: bool
    input_index: int | None = None
    exception: str = ""
    too_long: TooLong | None = None
    is_loggable: bool = False

    def of(self, task: EntryTask, *, num_retries: int = 0, dead: bool = False) -> EntryFailure:
        """Returns how it fails an entry, after this number of retries; with `dead`, the entry becomes a dead letter."""
        dead_after = task.attempts + 1 + num_retries if dead else None
        retried = f" It was tried again {num_retries} time{'s' * (num_retries > 1)}." if num_retries else ""
        message = self.message + retried
        return EntryFailure(
            task.key,
            self.code,
            message,
            dead_after,
            self.input_index,
            self.exception,
            too_long=self.too_long,
            is_loggable=self.is_loggable,
        )


def model_failure(
    error: BaseException, retry_on: tuple[type[BaseException], ...] = (), *, show_message: bool = False
) -> ModelFailure:
    """Returns what an exception means. Unless `show_message`, only its type is named: its message may quote the input.

    The messages of the exceptions that are made for clients are always shown.
    """
    if isinstance(error, InputRefusedError):
        too_long = error.too_long if isinstance(error, InputTooLongError) else None
        is_loggable = isinstance(error, UnsupportedError)
        return ModelFailure(
            InvalidRequestError.code, str(error), False, False, too_long=too_long, is_loggable=is_loggable
        )
    if isinstance(error, ModelOutputError):
        message = f"The model failed on this input: {error}."
        return ModelFailure(InputFailedError.code, message, is_out_of_memory=False, is_transient=False)
    reason, where = type(error).__name__, ": the worker's log has the traceback"
    if show_message and str(error):
        reason, where = f"{reason}: {str(error)[:MAX_MESSAGE_CHARS]}", ""
    message = f"The model failed on this input ({reason}){where}."
    return ModelFailure(InputFailedError.code, message, is_out_of_memory(error), isinstance(error, retry_on))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a model means that there was no memory. Each device and library says it in its own way."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    says_so = "out of memory" in text or "alloc_failed" in text or ("memory" in text and "alloc" in text)
    return isinstance(error, RuntimeError) and says_so


def late_failure_of(task: EntryTask) -> EntryFailure:
    """Returns how an entry fails whose deadline has passed, or would pass before its batch ends."""
    message = "No answer was possible before the deadline: allow more time, or send less at once."
    unrun = task.started_at is None and not task.attempts
    return EntryFailure(task.key, DeadlineExceededError.code, message, unrun=unrun, device_s=task.device_s)
