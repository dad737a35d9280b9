"""GPUs that are divided into MIG devices, by the names of NVML; none of these tests runs on one."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import (
    VISIBLE,
    NoGpuError,
    engine_devices,
    gpu_of,
    list_gpus,
    name_mig_devices,
    show_mig_device,
    show_only,
    span,
    used_memory_bytes,
    visible_gpus,
)
from tests.fake_nvml import GIB, FakeGpu, divided_gpu, fake_nvml

WHOLE = FakeGpu("GPU-w", "NVIDIA A10", 24 * GIB)
UNDIVIDED = FakeGpu("GPU-u", "NVIDIA H100 80GB HBM3", 80 * GIB, used_bytes=3 * GIB, mig_devices=[None] * 7)


def test_whole_gpus_are_listed_as_before() -> None:
    """Those that cannot be divided, and those that could be."""
    with fake_nvml(WHOLE, UNDIVIDED):
        gpus = list_gpus()
        assert [(gpu.uuid, gpu.memory_bytes, gpu.is_mig) for gpu in gpus] == [
            ("GPU-w", 24 * GIB, False),
            ("GPU-u", 80 * GIB, False),
        ]
        assert used_memory_bytes(gpus[1]) == 3 * GIB


def test_a_divided_gpu_is_listed_by_its_mig_devices() -> None:
    """With the name and the memory of each, in the order of their places."""
    with fake_nvml(divided_gpu("a", "0-2----"), WHOLE):
        gpus = list_gpus()
        assert [gpu.uuid for gpu in gpus] == ["MIG-a0-5678", "MIG-a2-5678", "GPU-w"]
        assert {(gpu.name, gpu.memory_bytes) for gpu in gpus[:2]} == {("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB)}
        assert used_memory_bytes(gpus[1]) == 0


def test_a_divided_gpu_without_mig_devices_is_none() -> None:
    """CUDA cannot use it either."""
    with fake_nvml(divided_gpu("a", "-------")):
        assert list_gpus() == []


def test_each_engine_sees_only_its_own_device() -> None:
    """A MIG device or a whole GPU beside them is the only GPU of its engine; the worker knows it by its number."""
    with fake_nvml(divided_gpu("a", "01-----"), WHOLE):
        visible = visible_gpus(list_gpus(), None)
    environment: dict[str, str] = {}
    name_mig_devices(visible, environment)
    assert environment == {VISIBLE: "MIG-a0-5678,MIG-a1-5678,GPU-w"}
    devices = engine_devices("all", "auto", visible)
    assert devices == ["cuda:0", "cuda:1", "cuda:2"]
    for device, uuid in zip(devices, environment[VISIBLE].split(","), strict=True):
        of_engine = dict(environment)
        assert show_mig_device(device, of_engine) == "cuda:0"
        assert of_engine == {VISIBLE: uuid}
        assert gpu_of(device, visible).uuid == uuid


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("MIG-a1", ["MIG-a1-5678"]),
        ("MIG-b0-5678,MIG-a0", ["MIG-b0-5678", "MIG-a0-5678"]),
        ("1", []),  # CUDA counts undivided GPUs
        ("MIG-c0", []),
    ],
)
def test_a_process_sees_the_devices_of_its_variable(variable: str, expected: list[str]) -> None:
    """By their UUIDs, as schedulers name them."""
    with fake_nvml(divided_gpu("a", "01"), divided_gpu("b", "0")):
        assert [gpu.uuid for gpu in visible_gpus(list_gpus(), variable)] == expected


def test_other_devices_change_nothing() -> None:
    """Whole GPUs keep their numbers, and the CPU has none."""
    environment: dict[str, str] = {}
    with fake_nvml(WHOLE, UNDIVIDED):
        name_mig_devices(list_gpus(), environment)
    assert environment == {}
    for device in ("cuda:1", "cuda", "cpu", "auto", "mps", "cuda:0,cuda:1"):
        assert show_mig_device(device, environment) == device
    named = {VISIBLE: "GPU-w,GPU-u"}
    assert show_mig_device("cuda:1", named) == "cuda:1"
    assert named == {VISIBLE: "GPU-w,GPU-u"}


def test_a_model_cannot_span_mig_devices() -> None:
    """CUDA gives a process only one; whole GPUs can be used together."""
    with fake_nvml(divided_gpu("a", "01"), WHOLE, UNDIVIDED):
        gpus = list_gpus()
    assert span(["cuda:2", "cuda:3"], gpus) == "cuda:2,cuda:3"
    with pytest.raises(NoGpuError, match="only one MIG device"):
        span(["cuda:0", "cuda:1"], gpus)


@pytest.mark.parametrize(
    ("variable", "device", "expected", "renamed"),
    [
        (None, "cuda:1", "1", "cuda:0"),
        (None, "cuda", "0", "cuda:0"),
        ("", "cuda:0,cuda:2", "0,2", "cuda:0,cuda:1"),
        ("GPU-a, GPU-b", "cuda:1", "GPU-b", "cuda:0"),
        ("3,5", "cuda:1,cuda:0", "5,3", "cuda:0,cuda:1"),
        ("3,5", "cpu", "3,5", "cpu"),
    ],
)
def test_an_engine_is_shown_its_gpus_only(variable: str | None, device: str, expected: str, renamed: str) -> None:
    """By the names in the variable of its worker, or by number."""
    environment = {} if variable is None else {VISIBLE: variable}
    assert show_only(device, environment) == renamed
    assert environment == {VISIBLE: expected}
