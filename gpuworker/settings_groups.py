"""Groups of a worker's settings, for the code that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuworker.policy.retries import RetryLimits


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How workers share GPUs by leases in Redis.

    Attributes:
        mode: whether a lease is held for a worker's life, for each batch, or not needed.
        pool: name of the GPUs that are shared.
        gpus: number of GPUs in the pool.
        per_gpu: maximum number of workers that hold one GPU at once.
        ttl_s: lifetime of a lease after its last renewal.
        margin_s: the engine stops this long before its lease expires.
        wait_s: how long an engine waits for a GPU before its entries go to other workers.
        lock_dir: folder of the files that engines of this host lock; None without one.
    """

    mode: Literal["off", "exclusive", "batch"]
    pool: str
    gpus: int
    per_gpu: int
    ttl_s: float
    margin_s: float
    wait_s: float
    lock_dir: str | None


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Limits of a batch. `max_tokens` None: by the device; `wait_s` None: adaptive."""

    max_size: int
    max_tokens: int | None
    wait_s: float | None
    age_bound_s: float


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """What the bulk lane gets beside the interactive lane; see policy.fair_share and policy.bulk_limit."""

    share: float
    age_bound_s: float
    stretch: float


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """How often a worker sends its heartbeat, and how long after the last one it counts as alive."""

    interval_s: float
    ttl_s: float


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """How often a worker renews its entries, and after which idle time entries go to another worker."""

    interval_s: float
    reclaim_idle_ms: int


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How often an input may begin to run, how many entries that were given up are kept, and retries of exceptions."""

    max_attempts: int
    max_dead_letters: int
    limits: RetryLimits
