"""The default options of backends in tests."""

from __future__ import annotations

from gpuworker.ipc.engine_options import EngineOptions

OPTIONS = EngineOptions(
    model="",
    model_revision=None,
    model_args="",
    backend="torch",
    device="cpu",
    gpu_lease="off",
    gpu_lease_dir=None,
    dtype="auto",
    cores=None,
    runners=None,
    compile=False,
    shape_buckets="auto",
    prepack=True,
    int8_ranges=None,
    max_batch_size=64,
    max_batch_tokens=None,
    max_batch_wait_ms=0,
    batch_age_bound_ms=200,
    bulk_share=0.1,
    bulk_age_bound_ms=5_000,
    bulk_stretch=1.2,
    preferred_batch_sizes="",
    error_messages="off",
    max_retries=3,
    retry_backoff_ms=1,
    log_level="warning",
    log_format="auto",
)
