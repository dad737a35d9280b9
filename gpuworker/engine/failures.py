"""What an error of the model means for the entry that it fails, and for later batches."""

from __future__ import annotations

from gpuworker.backends.base import InputRefusedError
from gpuworker.engine.work import EntryTask
from gpuworker.ipc.messages import EntryFailure
from shared.errors import DeadlineExceededError, InputFailedError, InvalidRequestError


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of a model means that there was no memory. Each device and library says it in its own way."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    says_so = "out of memory" in text or "alloc_failed" in text or ("memory" in text and "alloc" in text)
    return isinstance(error, RuntimeError) and says_so


def failure_of(task: EntryTask, error: Exception) -> EntryFailure:
    """Returns how an error fails an entry. Of an unexpected error it names the class: its text may quote the input."""
    if isinstance(error, InputRefusedError):
        return EntryFailure(task.key, InvalidRequestError.code, str(error))
    return EntryFailure(task.key, InputFailedError.code, f"The model failed on this input ({type(error).__name__}).")


def late_failure_of(task: EntryTask) -> EntryFailure:
    """Returns how an entry fails whose deadline has passed, or would pass before its batch ends."""
    message = "No answer was possible before the deadline: allow more time, or send less at once."
    return EntryFailure(task.key, DeadlineExceededError.code, message)
