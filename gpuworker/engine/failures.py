"""What an error of the model means: for the entry that it fails, and for the batches to come."""

from __future__ import annotations

from gpuworker.backends.base import InputRefused
from gpuworker.engine.work import Failed, Work
from shared.errors import DeadlineExceeded, InputFailed, InvalidRequest


def is_out_of_memory(error: Exception) -> bool:
    """Whether that is what an error of a model says: each device and library has its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    told = str(error).lower()
    says = "out of memory" in told or "alloc_failed" in told or ("memory" in told and "alloc" in told)
    return isinstance(error, RuntimeError) and says


def failure_of(work: Work, error: Exception) -> Failed:
    """Returns how an entry fails of it. Of an unforeseen error it names the kind: its text may hold the input's."""
    if isinstance(error, InputRefused):
        return Failed(work.key, InvalidRequest.code, str(error))
    return Failed(work.key, InputFailed.code, f"The model failed on this input ({type(error).__name__}).")


def late_failure_of(work: Work) -> Failed:
    """Returns how an entry fails for which there is no time left."""
    told = "No answer could come before the deadline: allow more time, or send less at once."
    return Failed(work.key, DeadlineExceeded.code, told)
