"""Settings about GPUs that several workers share by leases."""

from __future__ import annotations

import socket
from functools import cached_property
from typing import Literal

from pydantic import Field

from gpuworker.settings_groups import LeaseSettings
from shared.settings import Name, QueueSettings


class GpuLeaseSettings(QueueSettings):
    """How workers share GPUs: see docs/leases.md."""

    gpu_lease: Literal["off", "exclusive", "batch"] = Field(
        default="off",
        title="Whether workers share GPUs by leases",
        description="Whether workers share GPUs by leases in Redis. exclusive: a worker holds a GPU while it lives, "
        "others stand by; batch: it holds one for each batch, with an engine on each GPU of the pool or on those that "
        "--device or --devices names. See docs/leases.md.",
    )
    gpu_lease_pool: Name | None = Field(
        default=None,
        description="Name of the pool of shared GPUs; this host's name when not set. In a container, name the host.",
    )
    gpu_lease_gpus: int = Field(
        default=1,
        ge=1,
        le=64,
        title="Number of GPUs in that pool",
        description="Number of GPUs in that pool: cuda:0 and so on.",
    )
    gpu_lease_per_gpu: int = Field(
        default=1,
        ge=1,
        le=64,
        title="Maximum workers that hold a GPU at once",
        description="Maximum number of workers that hold one GPU at once.",
    )
    gpu_lease_ttl_s: float = Field(
        default=15.0,
        ge=0.5,
        le=600,
        title="Lifetime of a lease after its renewal",
        description="How long after its last renewal a lease may go to another worker; renewed at a third of it.",
    )
    gpu_lease_margin_s: float = Field(
        default=2.0,
        ge=0.05,
        le=60,
        title="How long before expiry the engine stops",
        description="The engine stops this long before its lease expires: the time that stopping may take.",
    )
    gpu_lease_wait_s: float = Field(
        default=5.0,
        ge=0.1,
        le=3_600,
        title="Wait for a GPU before handing back",
        description="gpu_lease=batch: if the queue has another worker, an engine that has waited this long for a GPU "
        "hands back its entries, and takes no more until it has one.",
    )
    gpu_lease_dir: str | None = Field(
        default=None,
        title="Folder that workers of this host share",
        description="Folder that all workers of this host share: the engine that uses a GPU locks a file in it.",
    )

    @cached_property
    def lease(self) -> LeaseSettings:
        """How workers share GPUs; the pool is named after this host if no name is set."""
        return LeaseSettings(
            mode=self.gpu_lease,
            pool=self.gpu_lease_pool or socket.gethostname(),
            gpus=self.gpu_lease_gpus,
            per_gpu=self.gpu_lease_per_gpu,
            ttl_s=self.gpu_lease_ttl_s,
            margin_s=self.gpu_lease_margin_s,
            wait_s=self.gpu_lease_wait_s,
            lock_dir=self.gpu_lease_dir,
        )
