"""Which slots of a pool a worker accepts, and where its engine then runs."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import Gpu, NoGpuError
from gpuworker.gpu.lease_slots import device_of, lock_of, slots_of, turn_devices


@pytest.mark.parametrize(
    ("gpus", "per_gpu", "device", "slots"),
    [
        (1, 1, "auto", ["0.0"]),
        (2, 2, "auto", ["0.0", "1.0", "0.1", "1.1"]),
        (2, 2, "cuda", ["0.0", "1.0", "0.1", "1.1"]),
        (4, 1, "cuda:2", ["2.0"]),
        (2, 2, "cuda:1", ["1.0", "1.1"]),
        (2, 1, "cpu", ["0.0", "1.0"]),
    ],
)
def test_slots_in_order_of_preference(gpus: int, per_gpu: int, device: str, slots: list[str]) -> None:
    """An unshared GPU first; only slots of one GPU if it is named."""
    assert slots_of(gpus, per_gpu, device) == slots


@pytest.mark.parametrize(
    ("devices", "gpus", "engines"),
    [
        (["auto"], 1, ["cuda:0"]),
        (["auto"], 3, ["cuda:0", "cuda:1", "cuda:2"]),
        (["cuda"], 2, ["cuda:0", "cuda:1"]),
        (["cuda:1"], 2, ["cuda:1"]),
        (["cuda", "cuda:1"], 2, ["cuda:0", "cuda:1"]),
        (["cpu", "cpu"], 2, ["cpu", "cpu"]),
    ],
)
def test_a_worker_that_takes_turns_has_an_engine_on_each_gpu(devices: list[str], gpus: int, engines: list[str]) -> None:
    """Of the pool, unless devices are named: a model is on a GPU before the worker has its turn there."""
    assert turn_devices(devices, gpus) == engines


def test_a_device_beyond_the_pool_is_refused() -> None:
    """No slot belongs to it: its engine would wait for ever."""
    with pytest.raises(NoGpuError, match="cuda:2 is not in the pool of 2"):
        turn_devices(["cuda:0", "cuda:2"], 2)


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
