"""The settings that an engine gets at its start. Not in `engine`, which the worker process must not import."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from gpuworker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The model, the device and its use, the limits of a batch and its log, as in WorkerSettings.

    If the device depends on a lease, the worker names it when the engine starts.
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
    int8_ranges: str | None
    max_batch_size: int
    preferred_batch_sizes: str
    max_batch_tokens: int | None
    max_batch_wait_ms: float | Literal["auto"]
    batch_age_bound_ms: float
    bulk_share: float
    bulk_age_bound_ms: float
    bulk_stretch: float
    error_messages: Literal["off", "log", "client"]
    max_retries: int
    retry_backoff_ms: float
    log_level: str
    log_format: Literal["auto", "json", "text"]

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> Self:
        """Returns those of a worker's settings that concern its engine."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})
