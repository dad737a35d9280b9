"""What an error of the model means: for the entry that it fails, and for the batches to come."""

from __future__ import annotations

from gpuworker.engine.work import Failed, Work


def is_out_of_memory(error: Exception) -> bool:
    """Whether that is what an error of a model says: each device and library has its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    told = str(error).lower()
    says = "out of memory" in told or "alloc_failed" in told or ("memory" in told and "alloc" in told)
    return isinstance(error, RuntimeError) and says


def failure_of(work: Work, error: Exception) -> Failed:
    """Returns how an entry fails of it. Names the kind of error alone: its text may hold the input's."""
    return Failed(work.key, "input_failed", f"The model failed on this input ({type(error).__name__}).")
