"""Which slots of a pool a worker accepts, and where its engine then runs."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import Gpu
from gpuworker.gpu.lease_slots import device_of, lock_of, slots_of


@pytest.mark.parametrize(
    ("gpus", "per_gpu", "device", "fixed", "slots"),
    [
        (1, 1, "auto", False, ["0.0"]),
        (2, 2, "auto", False, ["0.0", "1.0", "0.1", "1.1"]),
        (2, 2, "cuda", False, ["0.0", "1.0", "0.1", "1.1"]),
        (4, 1, "cuda:2", False, ["2.0"]),
        (2, 2, "cuda:1", True, ["1.0", "1.1"]),
        (2, 2, "auto", True, ["0.0", "0.1"]),
        (2, 1, "cpu", False, ["0.0", "1.0"]),
    ],
)
def test_slots_in_order_of_preference(gpus: int, per_gpu: int, device: str, fixed: bool, slots: list[str]) -> None:
    """An unshared GPU first; only slots of one GPU if it is named, or if the model is loaded before the lease."""
    assert slots_of(gpus, per_gpu, device, fixed=fixed) == slots


def test_an_engine_runs_on_the_gpu_of_its_slot() -> None:
    """Unless another device is set."""
    assert [device_of("3.1", device) for device in ("auto", "cuda", "cuda:3", "cpu")] == [
        "cuda:3",
        "cuda:3",
        "cuda:3",
        "cpu",
    ]


def test_a_lock_names_the_gpu_of_its_slot() -> None:
    """By its UUID, whatever number its container gives it; without a driver by pool and slot."""
    visible = [Gpu("GPU-a", "", 0, ""), Gpu("GPU-b", "", 0, "")]
    assert lock_of("1.0", "cuda:1", "node", visible) == "GPU-b.0"
    assert lock_of("1.2", "cuda:1", "node", []) == "node-1.2"
    assert lock_of("1.0", "cpu", "node", visible) == "node-1.0"
