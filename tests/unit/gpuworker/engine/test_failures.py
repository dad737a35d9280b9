"""What an exception of a model means."""

from __future__ import annotations

import pytest
import torch

from gpuworker.backends.base import InputRefusedError, InputTooLongError, UnsupportedError
from gpuworker.engine.failures import is_out_of_memory, model_failure


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("a memory of an allocation"), False),
    ],
)
def test_errors_of_each_device_are_recognized_as_out_of_memory(error: Exception, expected: bool) -> None:
    """The errors are those of Python, of torch on a GPU, and of torch on a CPU."""
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnsupportedError("This model has no tokenizer."), True),
        (InputTooLongError(9, 8), True),
        (InputRefusedError("This text is bad."), False),
        (ValueError("This text is bad."), False),
    ],
)
def test_messages_of_a_user_s_class_are_not_for_logs(error: Exception, expected: bool) -> None:
    """They may quote what a client sent, which those of the worker do not."""
    assert model_failure(error, show_message=True).is_loggable is expected
