"""What an engine is told at its start. Apart from the engine itself, which the worker process must not import."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from gpuworker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The model, the device and its use, the bounds of a batch and the level of logs, as in WorkerSettings.

    The worker says at an engine's start which device is meant, where that depends on a lease.
    """

    model: str
    model_revision: str | None
    model_args: str
    backend: str
    device: str
    gpu_lease: str
    gpu_lease_dir: str | None
    dtype: str
    cores: int | None
    runners: int | None
    compile: bool
    shape_buckets: str
    prepack: bool
    max_batch_size: int
    max_batch_tokens: int | None
    max_batch_wait_ms: float | Literal["auto"]
    batch_age_bound_ms: float
    bulk_share: float
    bulk_age_bound_ms: float
    bulk_stretch: float
    log_level: str

    @classmethod
    def of(cls, settings: WorkerSettings) -> Self:
        """Returns what of a worker's settings concerns its engine."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(cls)})
