"""Which GPUs a process sees, and which engines it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuworker.gpu.devices import (
    NO_GPU,
    Gpu,
    NoGpuError,
    check_devices,
    engine_devices,
    gpu_of,
    list_gpus,
    lists_all,
    visible_gpus,
)

HOST = [Gpu(f"GPU-{letter}{letter}-1234", "NVIDIA H100", 80 * 2**30, "570.1") for letter in "abcd"]


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        (None, "abcd"),
        ("0", "a"),
        ("2,0", "ca"),
        (" 1 , 3 ", "bd"),
        ("GPU-cc", "c"),
        ("GPU-aa-1234,3", "ad"),
        ("", ""),
        ("-1", ""),
        ("1,9,2", "b"),  # a part that names no GPU hides those after it
        ("NoDevFiles", ""),
        ("GPU-", ""),  # the prefix of several, and so of none
        ("1,1,2", "b"),
    ],
)
def test_a_process_sees_the_gpus_of_its_variable(variable: str | None, visible: str) -> None:
    """As CUDA reads CUDA_VISIBLE_DEVICES."""
    assert [gpu.uuid[4] for gpu in visible_gpus(HOST, variable)] == list(visible)


def test_engines_are_started_for_the_named_devices() -> None:
    """For all GPUs, several devices, or the one that is set."""
    assert engine_devices("all", "auto", HOST[:2]) == ["cuda:0", "cuda:1"]
    assert engine_devices("cuda:1, cpu", "auto", []) == ["cuda:1", "cpu"]
    assert engine_devices("0, 13", "auto", []) == ["cuda:0", "cuda:13"]
    assert engine_devices("", "mps", HOST) == ["mps"]
    with pytest.raises(NoGpuError, match="no NVIDIA GPU"):
        engine_devices("all", "auto", [])


@pytest.mark.parametrize(
    ("option", "names", "gpus", "reason"),
    [
        ("--device cuda", ["cuda"], 0, "no NVIDIA GPU is visible; --device cpu uses the CPU"),
        ("--devices 0,1", ["cuda:0", "cuda:1"], 1, "the only visible GPU is cuda:0"),
        ("--devices cpu,4", ["cpu", "cuda:4"], 4, "the GPUs visible here are cuda:0 to cuda:3"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(option: str, names: list[str], gpus: int, reason: str) -> None:
    """In the words of the user, with what there is."""
    with pytest.raises(NoGpuError, match=f"^{option}: {reason}$"):
        check_devices(names, option, HOST[:gpus])


@pytest.mark.parametrize(
    ("gpus", "variable", "device_file", "expected"),
    [
        (0, None, "null", True),  # neither a driver nor a GPU
        (4, None, "nvidiactl", True),
        (4, "0,1", "nvidiactl", True),
        (4, "MIG-1c2d", "nvidiactl", True),
        (4, "0,MIG-GPU-aa-1234/1/0", "nvidiactl", False),  # as drivers before 470 named a MIG device
        (0, None, "nvidiactl", False),  # a container without NVML, or one of its errors
        (0, "", "kfd", False),  # a GPU of AMD
        (0, None, "dxg", False),
        (0, None, "nvhost-gpu", False),
    ],
)
def test_no_gpu_is_missed_where_the_list_may_lack_some(
    gpus: int, variable: str | None, device_file: str, expected: bool, tmp_path: Path
) -> None:
    """Then the engine finds out whether the GPU is there."""
    (tmp_path / device_file).touch()
    assert lists_all(HOST[:gpus], variable, tmp_path) is expected


def test_devices_that_are_there_are_accepted() -> None:
    """GPUs by their numbers, and devices that are no GPUs on any host."""
    check_devices(["cuda", "cuda:3"], "--devices", HOST)
    check_devices(["auto", "cpu", "mps"], "--devices", [])


def test_an_engine_knows_its_gpu() -> None:
    """By the number under which its process sees it."""
    assert [gpu_of(device, HOST) for device in ("cuda", "cuda:0", "cuda:3")] == [HOST[0], HOST[0], HOST[3]]
    assert [gpu_of(device, HOST) for device in ("cpu", "mps", "cuda:9", "")] == [NO_GPU] * 4


def test_a_host_without_a_driver_has_no_gpus() -> None:
    """The query raises nothing."""
    assert all(gpu.uuid and gpu.memory_bytes > 0 for gpu in list_gpus())
