"""Settings of a worker: flat for flags and environment variables, in groups for the code that uses them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator, model_validator

from gpuworker.failure_settings import FailureSettings
from gpuworker.gpu.devices import parse_devices
from gpuworker.lease_settings import GpuLeaseSettings
from gpuworker.model_settings import AUTO, ModelSettings
from gpuworker.model_spec import is_function
from gpuworker.policy.credits import default_claim_window
from gpuworker.policy.limits import parse_sizes
from gpuworker.settings_groups import (
    BatchSettings,
    BulkSettings,
    HeartbeatSettings,
    RenewalSettings,
)
from shared.keys import RELEASED
from shared.model_names import queue_slug
from shared.settings import Host, Name

MAX_WAIT_MS = 60_000


class WorkerSettings(ModelSettings, GpuLeaseSettings, FailureSettings):
    """Settings that a worker reads once at start, from `REDBATCH_*` variables and command-line flags."""

    admin_host: Host = Field(default="127.0.0.1", description="Address of the admin port.")
    admin_port: int = Field(
        default=9091,
        ge=0,
        le=65535,
        title="Port of /metrics and the health checks",
        description="Port of /metrics, /livez, /readyz and /health; 0 takes a free one. Not set: 9091, or a free one "
        "if that is taken.",
    )
    worker_id: Name | None = Field(
        default=None,
        title="Name of this worker and its consumer",
        description="Name of this worker and its consumer (such as the pod's); host, pid and a random part if not set.",
    )
    max_batch_size: int = Field(default=64, ge=1, le=10_000, description="Maximum number of inputs in a batch.")
    preferred_batch_sizes: str = Field(
        default="",
        max_length=1_024,
        title="Preferred batch sizes, such as 8,16,32",
        description="Preferred sizes of a batch, such as 8,16,32: one that reaches such a size goes at once, cut to "
        "the largest that it reaches; any other waits up to max_batch_wait_ms. See docs/performance.md.",
    )
    max_batch_tokens: Annotated[int | None, AUTO] = Field(
        default=None,
        ge=1,
        title="Maximum number of tokens in a batch",
        description="Maximum number of tokens in a batch, padding included; auto, or not set: 512 on a CPU, 1024 "
        "there for a reranker or classifier; 16384 on a GPU and for a function, whose inputs count 1 or what its "
        "method cost returns.",
    )
    max_batch_wait_ms: Annotated[float, Field(ge=0, le=MAX_WAIT_MS)] | Literal["auto"] = Field(
        default=0.0,
        title="Maximum wait for a batch to fill",
        description="Maximum wait for a batch to fill, from its first input; auto: while the wait is expected to pay.",
    )
    batch_age_bound_ms: float = Field(
        default=200.0,
        ge=0,
        le=60_000,
        title="Inputs that waited this long go first",
        description="An input that has waited this long goes first, whatever its length.",
    )
    bulk_share: float = Field(
        default=0.1,
        ge=0,
        le=0.9,
        title="Minimum share of tokens for bulk",
        description="Minimum share of the tokens for the bulk lane, however much waits in the interactive lane.",
    )
    bulk_age_bound_ms: float = Field(
        default=5_000.0,
        ge=0,
        le=3_600_000,
        title="Bulk passed over this long goes first",
        description="Whatever that share: bulk goes first after it has been passed over for this long.",
    )
    bulk_stretch: float = Field(
        default=1.1,
        ge=1,
        le=1_000,
        title="Maximum slowdown of a batch by bulk",
        description="While interactive inputs arrive, a batch that contains bulk takes at most this many times as long "
        "as one of interactive inputs alone. A higher value makes bulk faster and interactive answers slower.",
    )
    max_model_input_bytes: int | None = Field(
        default=None,
        ge=1,
        title="Maximum size of this function's inputs",
        description="Maximum size of an input of the function that this worker serves, if below the gateway's "
        "max_input_bytes. Gateways learn it from the heartbeat.",
    )
    claim_window: Annotated[int | None, AUTO] = Field(
        default=None,
        ge=1,
        le=40_000,
        title="Maximum entries that a worker holds",
        description="Maximum number of entries that a worker holds, to sort by length and to fill batches; auto, or "
        "not set: four times max_batch_size, and at least 256.",
    )
    heartbeat_s: float = Field(default=1.0, gt=0, le=60, description="Interval between heartbeats of a worker.")
    heartbeat_ttl_s: float = Field(
        default=5.0,
        gt=0,
        le=600,
        title="How long a heartbeat counts as alive",
        description="How long after its last heartbeat a worker counts as alive.",
    )
    reply_ttl_s: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        title="How long replies stay past the deadline",
        description="How long past its deadline the reply of a request stays in Redis.",
    )
    renew_ms: int = Field(
        default=250,
        ge=10,
        le=60_000,
        title="How often a worker renews its entries",
        description="How often a worker renews the entries that it holds, and drops those that are gone.",
    )
    reclaim_idle_ms: int = Field(
        default=3_000,
        ge=50,
        le=600_000,
        title="Idle time before entries are reclaimed",
        description="Entries that were not renewed for this long go to another worker.",
    )
    drain_grace_s: float = Field(
        default=30.0,
        ge=0,
        le=600,
        title="After SIGTERM: time to finish batches",
        description="After SIGTERM: time for running batches to finish.",
    )

    @field_validator("cores", "runners", "max_batch_tokens", "claim_window", mode="before")
    @classmethod
    def _auto(cls, value: object) -> object:
        return None if value == "auto" else value

    @field_validator("preferred_batch_sizes")
    @classmethod
    def _sizes(cls, value: str) -> str:
        try:
            return ",".join(map(str, parse_sizes(value)))
        except ValueError:
            raise ValueError("it takes numbers from 1 on, separated by commas, such as 8,16,32") from None

    @field_validator("max_batch_wait_ms", mode="wrap")
    @classmethod
    def _number_or_auto(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:  # one message; a union has one for each of its branches
            raise ValueError(f"it takes a number from 0 to {MAX_WAIT_MS}, or auto") from None

    @field_validator("worker_id")
    @classmethod
    def _not_reserved(cls, value: str | None) -> str | None:
        if value == RELEASED:
            raise ValueError(f"{RELEASED} is the name under which entries are handed back: take another")
        return value

    @model_validator(mode="after")
    def _lease_is_sensible(self) -> Self:
        if self.gpu_lease != "off" and self.gpu_lease_margin_s > self.gpu_lease_ttl_s / 3:
            raise ValueError("gpu_lease_margin_s: at most a third of gpu_lease_ttl_s")
        if self.gpu_lease == "exclusive" and self.devices:
            raise ValueError("devices: with gpu_lease=exclusive a worker has one device; start several")
        gpu = self.device.partition(":")[2]
        if self.gpu_lease != "off" and gpu and int(gpu) >= self.gpu_lease_gpus:
            raise ValueError(f"gpu_lease_gpus: cuda:{gpu} needs a pool of at least {int(gpu) + 1} GPUs")
        if self.gpu_lease == "batch" and self.runners not in (None, 1):
            raise ValueError("runners: with gpu_lease=batch one batch runs at a time")
        return self

    @model_validator(mode="after")
    def _window_fills_a_batch(self) -> Self:
        if self.claim_window is not None and self.claim_window < self.max_batch_size:
            raise ValueError(
                f"claim_window: at least max_batch_size ({self.max_batch_size}), or no batch of single inputs is full; "
                "twice that, and the next batch is claimed while one runs"
            )
        return self

    @model_validator(mode="after")
    def _prefers_possible_sizes(self) -> Self:
        largest = max(parse_sizes(self.preferred_batch_sizes), default=0)
        if largest > self.max_batch_size:
            raise ValueError(
                f"preferred_batch_sizes: {largest} is above max_batch_size ({self.max_batch_size}): raise that, or "
                "leave the size out"
            )
        return self

    @model_validator(mode="after")
    def _spans_gpus(self) -> Self:
        names = parse_devices(self.devices)
        if self.span and not is_function(self.model):
            raise ValueError("span: only your own class (package.module:Class) can use several GPUs at once")
        if self.span and self.devices != "all" and not all(re.fullmatch(r"cuda:\d+", each) for each in names):
            raise ValueError("span: name the GPUs in devices, as in --devices 0,1 or --devices all")
        if self.span and self.gpu_lease != "off":
            raise ValueError("span: not with gpu_lease, which leases one GPU at a time")
        gpus = ["cuda:0" if each == "cuda" else each for each in names if each.startswith("cuda")]
        if len(gpus) != len(set(gpus)):
            raise ValueError("devices: name each GPU once")
        return self

    @property
    def effective_claim_window(self) -> int:
        """Maximum entries that a worker holds."""
        return self.claim_window or default_claim_window(self.max_batch_size)

    @cached_property
    def batching(self) -> BatchSettings:
        """Limits of a batch."""
        wait_ms = self.max_batch_wait_ms
        wait_s = None if wait_ms == "auto" else wait_ms / 1000
        return BatchSettings(self.max_batch_size, self.max_batch_tokens, wait_s, self.batch_age_bound_ms / 1000)

    @cached_property
    def bulk(self) -> BulkSettings:
        """What the bulk lane gets."""
        return BulkSettings(self.bulk_share, self.bulk_age_bound_ms / 1000, self.bulk_stretch)

    @cached_property
    def heartbeat(self) -> HeartbeatSettings:
        """Interval and lifetime of heartbeats."""
        return HeartbeatSettings(self.heartbeat_s, self.heartbeat_ttl_s)

    @cached_property
    def renewal(self) -> RenewalSettings:
        """How entries are renewed and reclaimed."""
        return RenewalSettings(self.renew_ms / 1000, self.reclaim_idle_ms)

    @property
    def queue_name(self) -> str:
        """The queue to serve."""
        return self.queue or queue_slug(self.model)
