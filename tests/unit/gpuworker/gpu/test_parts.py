"""GPUs that are divided (Multi-Instance GPU), by the names of NVML; none of these tests runs on one."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import (
    VISIBLE,
    NoGpuError,
    engine_devices,
    gpu_of,
    list_gpus,
    name_parts,
    show_part,
    used_memory_bytes,
    visible_gpus,
)
from tests.fake_nvml import GIB, FakeGpu, divided_gpu, fake_nvml

WHOLE = FakeGpu("GPU-w", "NVIDIA A10", 24 * GIB)
UNDIVIDED = FakeGpu("GPU-u", "NVIDIA H100 80GB HBM3", 80 * GIB, used_bytes=3 * GIB, parts=[None] * 7)


def test_whole_gpus_are_listed_as_before() -> None:
    """Those that cannot be divided, and those that could be."""
    with fake_nvml(WHOLE, UNDIVIDED):
        gpus = list_gpus()
        assert [(gpu.uuid, gpu.memory_bytes, gpu.is_part) for gpu in gpus] == [
            ("GPU-w", 24 * GIB, False),
            ("GPU-u", 80 * GIB, False),
        ]
        assert used_memory_bytes(gpus[1]) == 3 * GIB


def test_a_divided_gpu_is_listed_by_its_parts() -> None:
    """With the name and the memory of each part, in the order of their places."""
    with fake_nvml(divided_gpu("a", "0-2----"), WHOLE):
        gpus = list_gpus()
        assert [gpu.uuid for gpu in gpus] == ["MIG-a0-5678", "MIG-a2-5678", "GPU-w"]
        assert {(gpu.name, gpu.memory_bytes) for gpu in gpus[:2]} == {("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB)}
        assert used_memory_bytes(gpus[1]) == 0


def test_a_divided_gpu_without_parts_is_none() -> None:
    """CUDA cannot use it either."""
    with fake_nvml(divided_gpu("a", "-------")):
        assert list_gpus() == []


def test_each_part_has_an_engine_that_sees_only_this_part() -> None:
    """The engine's process has its part as the only GPU, and the worker knows it by its number."""
    with fake_nvml(divided_gpu("a", "01-----"), divided_gpu("b", "0------")):
        visible = visible_gpus(list_gpus(), None)
    environment: dict[str, str] = {}
    name_parts(visible, environment)
    assert environment == {VISIBLE: "MIG-a0-5678,MIG-a1-5678,MIG-b0-5678"}
    devices = engine_devices("all", "auto", visible)
    assert devices == ["cuda:0", "cuda:1", "cuda:2"]
    for device, uuid in zip(devices, environment[VISIBLE].split(","), strict=True):
        of_engine = dict(environment)
        assert show_part(device, of_engine) == "cuda:0"
        assert of_engine == {VISIBLE: uuid}
        assert gpu_of(device, visible).uuid == uuid


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("MIG-a1", ["MIG-a1-5678"]), ("MIG-b0-5678,MIG-a0", ["MIG-b0-5678", "MIG-a0-5678"]), ("1", ["MIG-a1-5678"])],
)
def test_a_process_sees_the_parts_of_its_variable(variable: str, expected: list[str]) -> None:
    """As schedulers set it: by UUID."""
    with fake_nvml(divided_gpu("a", "01"), divided_gpu("b", "0")):
        assert [gpu.uuid for gpu in visible_gpus(list_gpus(), variable)] == expected


def test_other_devices_change_nothing() -> None:
    """Whole GPUs keep their numbers, and the CPU has none."""
    environment: dict[str, str] = {}
    with fake_nvml(WHOLE, UNDIVIDED):
        name_parts(list_gpus(), environment)
    assert environment == {}
    for device in ("cuda:1", "cuda", "cpu", "auto", "mps", "cuda:0,cuda:1"):
        assert show_part(device, environment) == device
    named = {VISIBLE: "GPU-w,GPU-u"}
    assert show_part("cuda:1", named) == "cuda:1"
    assert named == {VISIBLE: "GPU-w,GPU-u"}


def test_a_model_cannot_span_parts() -> None:
    """CUDA gives a process one part only."""
    with pytest.raises(NoGpuError, match="only one part"):
        show_part("cuda:0,cuda:1", {VISIBLE: "MIG-a0-5678,MIG-a1-5678"})
