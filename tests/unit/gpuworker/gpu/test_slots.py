"""Which slots of a pool a worker asks for, and where its engine runs then."""

from __future__ import annotations

import pytest

from gpuworker.gpu.devices import Gpu
from gpuworker.gpu.slots import device_of, lock_of, slots_of


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
def test_slots(gpus: int, per_gpu: int, device: str, fixed: bool, slots: list[str]) -> None:
    """A GPU for oneself first; of a certain GPU alone, where one is named or the model is there before the lease."""
    assert slots_of(gpus, per_gpu, device, fixed=fixed) == slots


def test_an_engine_runs_where_its_slot_is() -> None:
    """Unless it is set to something else."""
    assert [device_of("3.1", device) for device in ("auto", "cuda", "cuda:3", "cpu")] == [
        "cuda:3",
        "cuda:3",
        "cuda:3",
        "cpu",
    ]


def test_a_slot_is_locked_by_the_gpu_that_it_is_on() -> None:
    """Whatever its container calls it; where the driver tells nothing, by pool and slot."""
    seen = [Gpu("GPU-a", "", 0, ""), Gpu("GPU-b", "", 0, "")]
    assert lock_of("1.0", "cuda:1", "node", seen) == "GPU-b.0"
    assert lock_of("1.2", "cuda:1", "node", []) == "node-1.2"
    assert lock_of("1.0", "cpu", "node", seen) == "node-1.0"
