"""Which GPUs a process sees, and which engines it starts."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import NO_GPU, Gpu, NoGpu, devices_of, gpu_of, gpus, visible

HOST = [Gpu(f"GPU-{letter}{letter}-1234", "NVIDIA H100", 80 * 2**30, "570.1") for letter in "abcd"]


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        (None, "abcd"),
        ("0", "a"),
        ("2,0", "ca"),
        (" 1 , 3 ", "bd"),
        ("GPU-cc", "c"),
        ("GPU-aa-1234,3", "ad"),
        ("", ""),
        ("-1", ""),
        ("1,9,2", "b"),  # what follows one that there is not is not seen
        ("NoDevFiles", ""),
        ("GPU-", ""),  # of several, and so of none
        ("1,1,2", "b"),
    ],
)
def test_a_process_sees_what_its_variable_names(variable: str | None, seen: str) -> None:
    """As CUDA reads CUDA_VISIBLE_DEVICES."""
    assert [gpu.uuid[4] for gpu in visible(HOST, variable)] == list(seen)


def test_engines_are_started_for_what_is_named() -> None:
    """All GPUs, some devices, or the one that is set."""
    assert devices_of("all", "auto", HOST[:2]) == ["cuda:0", "cuda:1"]
    assert devices_of("cuda:1, cpu", "auto", []) == ["cuda:1", "cpu"]
    assert devices_of("", "mps", HOST) == ["mps"]
    with pytest.raises(NoGpu, match="no NVIDIA GPU"):
        devices_of("all", "auto", [])


def test_an_engine_knows_its_gpu() -> None:
    """By the number under which its process sees it."""
    assert [gpu_of(device, HOST) for device in ("cuda", "cuda:0", "cuda:3")] == [HOST[0], HOST[0], HOST[3]]
    assert [gpu_of(device, HOST) for device in ("cpu", "mps", "cuda:9", "")] == [NO_GPU] * 4


def test_a_host_without_a_driver_has_none() -> None:
    """Asking raises nothing."""
    assert all(gpu.uuid and gpu.memory_bytes > 0 for gpu in gpus())
