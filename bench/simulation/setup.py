"""The setup of a simulation: the device, the path of requests to it, and the settings of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuworker.policy.costs import Costs
from gpuworker.policy.credits import default_claim_window
from gpuworker.policy.limits import Limits
from gpuworker.settings import WorkerSettings
from shared.long_entries import min_long_tokens

TIMEOUT_S = 10.05
MAX_SIZE: int = WorkerSettings.model_fields["max_batch_size"].default


@dataclass(frozen=True, slots=True)
class Device:
    """A model on its device.

    Attributes:
        costs: cost model of a batch's time.
        max_tokens: token budget of a batch.
        lengths: lengths of the inputs: one token each, or `mixed` as `redbatch bench --mix mixed` sends them.
        packed: whether batches have no padding.
        runners: number of batches that run at once.
        ahead: whether a full batch is prepared while others run.
        jitter: standard deviation of a batch's time, as a share of it.
        gap_s: time from the end of one batch to the start of the next, if one is ready.
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
class RequestPath:
    """The path of a request outside the engine.

    It takes `in_s` to the worker and `out_s` back. Simultaneous requests queue at one server that has `in_each_s` and
    `out_each_s` of work for each: the CPU of the gateway, of Redis and of the worker.
    """

    in_s: float = 0.0006
    out_s: float = 0.0006
    in_each_s: float = 0.00012
    out_each_s: float = 0.00012


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster.

    `wait_s` is max_batch_wait_ms in seconds; None means auto. `window` is claim_window; None means auto.
    `short_first`: whether short inputs go before long ones (gpuworker.policy.short_first), as they do in the product.
    """

    device: Device
    path: RequestPath = RequestPath()
    wait_s: float | None = 0.0
    workers: int = 1
    max_size: int = MAX_SIZE
    window: int | None = None
    timeout_s: float = TIMEOUT_S
    short_first: bool = True

    @property
    def claim_window(self) -> int:
        """Maximum requests that a worker holds."""
        return self.window or default_claim_window(self.max_size)

    @property
    def limits(self) -> Limits:
        """The limits of a batch."""
        min_long = min_long_tokens(self.device.max_tokens) if self.short_first else None
        return Limits(
            self.max_size, self.device.max_tokens, self.wait_s, packed=self.device.packed, min_long_tokens=min_long
        )


DEVICES = {
    # `simulated:base_ms=5,item_ms=3`: the first input is part of the base.
    "simulated": Device(Costs(0.002, 0.003), 16_384, "one", packed=True),
    # MiniLM on two cores, with one thread in each of two runners.
    "minilm-cpu": Device(Costs(0.005, 0.000155), 512, packed=True, runners=2, ahead=False),
    # A small model on a GPU.
    "gpu": Device(Costs(0.004, 0.000002), 16_384),
    # A model with a large fixed cost per batch.
    "large-base": Device(Costs(0.020, 0.0001), 1_024),
    "gpu-large-base": Device(Costs(0.020, 0.000002), 16_384),
}

# Several gateways serve a GPU, so the work per request is smaller.
PATHS = {name: RequestPath(in_each_s=0.00002, out_each_s=0.00002) for name in ("gpu", "gpu-large-base")}
