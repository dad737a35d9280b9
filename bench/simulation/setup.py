"""What is simulated: a device, the path to it, and how both are set up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuworker.policy.batching import Limits
from gpuworker.policy.costs import Costs
from gpuworker.settings import WorkerSettings

TIMEOUT_S = 10.05
CLAIM_WINDOW: int = WorkerSettings.model_fields["claim_window"].default
MAX_SIZE: int = WorkerSettings.model_fields["max_batch_size"].default


@dataclass(frozen=True, slots=True)
class Device:
    """A model on its device.

    Attributes:
        costs: what a batch takes.
        max_tokens: the token budget of a batch.
        lengths: of the inputs: one token each, or `mixed` as `redbatch bench --mix mixed` sends them.
        packed: whether batches hold no padding.
        runners: how many batches run at once.
        ahead: whether a full batch is made ready while others run.
        jitter: standard deviation of a batch's time, as a share of it.
        gap_s: from the end of one batch to the begin of the next, when there is one.
    """

    costs: Costs
    max_tokens: int
    lengths: Literal["one", "mixed"] = "mixed"
    packed: bool = False
    runners: int = 1
    ahead: bool = True
    jitter: float = 0.0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Path:
    """The way of a request outside the engine.

    It takes `in_s` to the worker and `out_s` back. Where many come at once they stand in line, at one server that has
    `in_each_s` and `out_each_s` of work for each of them: the CPU of the gateway, of Redis and of the worker.
    """

    in_s: float = 0.0006
    out_s: float = 0.0006
    in_each_s: float = 0.00012
    out_each_s: float = 0.00012


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster.

    `wait_s` is max_batch_wait_ms in seconds; None stands for auto.
    """

    device: Device
    path: Path = Path()
    wait_s: float | None = 0.0
    workers: int = 1
    max_size: int = MAX_SIZE
    window: int = CLAIM_WINDOW
    timeout_s: float = TIMEOUT_S

    @property
    def limits(self) -> Limits:
        """The limits of a batch."""
        return Limits(self.max_size, self.device.max_tokens, self.wait_s, packed=self.device.packed)


DEVICES = {
    # `simulated:base_ms=5,item_ms=3`: the first input is part of the base.
    "simulated": Device(Costs(0.002, 0.003), 16_384, "one", packed=True),
    # MiniLM on two cores, with one thread in each of two runners.
    "minilm-cpu": Device(Costs(0.005, 0.000155), 512, packed=True, runners=2, ahead=False),
    # A small model on a GPU.
    "gpu": Device(Costs(0.004, 0.000002), 16_384),
    # One that is slow to start.
    "large-base": Device(Costs(0.020, 0.0001), 1_024),
    "gpu-large-base": Device(Costs(0.020, 0.000002), 16_384),
}

# In front of a GPU stand several gateways.
PATHS = {name: Path(in_each_s=0.00002, out_each_s=0.00002) for name in ("gpu", "gpu-large-base")}
