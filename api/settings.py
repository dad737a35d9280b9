"""Settings of a gateway: flat, for flags and environment variables."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from api.request_settings import RequestSettings
from api.settings_groups import Durability, JobSettings, ResultsPayload
from shared.tenants import JobBounds


class GatewaySettings(RequestSettings):
    """Settings that a gateway reads once at start, from `REDBATCH_*` variables and command-line flags."""

    job_timeout_s: float = Field(
        default=86_400.0,
        gt=0,
        le=604_800,
        description="Timeout of a job; then it expires and keeps the results that it has.",
    )
    job_ttl_s: float = Field(
        default=3_600.0,
        gt=0,
        le=604_800,
        title="How long a job is kept after it ends",
        description="How long a job and its results are kept after the job ends.",
    )
    max_job_inputs: int = Field(
        default=1_000_000, ge=1, le=10_000_000, description="Maximum number of inputs in one job."
    )
    max_job_body_bytes: int = Field(
        default=256 * 10**6,
        ge=1,
        title="Maximum body size of a job in lines",
        description="Maximum body size of a job that is sent as lines (application/x-ndjson).",
    )
    max_owed_inputs: int = Field(
        default=2_000_000,
        ge=1,
        title="Maximum inputs of jobs without a result",
        description="Maximum number of inputs without a result, over all jobs of a queue; above it: 503.",
    )
    max_open_jobs: int = Field(
        default=2_000,
        ge=1,
        le=10_000,
        title="Maximum number of jobs not yet ended",
        description="Maximum number of jobs of a queue that have not ended, with those being received; above it: 503.",
    )
    max_owed_bytes: int = Field(
        default=2 * 2**30,
        ge=1,
        title="Maximum bytes of inputs without results",
        description="Maximum bytes of inputs without a result, over all jobs of a queue, with those being received; "
        "above it: 503.",
    )
    max_upload_bytes: int = Field(
        default=512 * 2**20,
        ge=1,
        title="Maximum bytes of jobs being received",
        description="Maximum bytes in Redis of jobs of a queue that are being received; above it: 503.",
    )
    max_result_ratio: float = Field(
        default=0.5,
        gt=0,
        le=1,
        title="Fraction of maxmemory for jobs' results",
        description="Maximum fraction of Redis' maxmemory for the results of a queue's jobs: those that are kept, and "
        "those that are expected; above it: 503. No bound if Redis has no maxmemory.",
    )
    max_tenant_job_share: float = Field(
        default=0.8,
        gt=0,
        le=1,
        title="Fraction of these maxima for one tenant",
        description="Share of each of these maxima that a single tenant of weight 1 may have; above it: 429. Several "
        "divide more than that by weight, and a part stays free for the next. 1: no bound for a tenant.",
    )
    min_upload_bytes_per_s: int = Field(
        default=4_096,
        ge=0,
        title="Minimum rate of a job in lines; 0: none",
        description="Minimum rate, after body_timeout_s, at which a job in lines must arrive; below it: 408. 0: none.",
    )
    max_upload_s: float = Field(
        default=3_600.0,
        gt=0,
        le=86_400,
        title="Maximum time to receive a job in lines",
        description="Maximum time for which a gateway waits for the pieces of a job in lines; above it: 408.",
    )
    job_durability: Durability = Field(
        default="none",
        title="What holds a job before it is accepted",
        description="What must hold a job before it is accepted: the memory of Redis (none), its append-only file, "
        "written to disk (aof), or replicas of it (replicas: see job_replicas).",
    )
    job_replicas: int = Field(
        default=0,
        ge=0,
        le=100,
        title="Replicas that hold an accepted job",
        description="With job_durability replicas: how many replicas must hold a job before it is accepted. 0: all "
        "that are connected but one, so that one slow replica delays no job, and at least one. A master that is cut "
        "off with some of its replicas goes on accepting jobs; a number above theirs refuses these.",
    )
    job_durable_s: float = Field(
        default=2.0, gt=0, le=60, description="Maximum time to reach that durability; after it: 503."
    )
    results_payload: ResultsPayload = Field(
        default="auto",
        title="What the results stream has of a job",
        description="What the results stream carries of a job that ended: its results (inline), or neither results nor "
        "a link to them (none). auto: the outputs of a function, and a link to vectors.",
    )
    max_inline_bytes: int = Field(
        default=64 * 2**10,
        ge=0,
        le=2**20,
        title="Maximum bytes of results carried inline",
        description="Maximum bytes of results that the results stream carries inline; a link replaces larger ones.",
    )
    worker_grace_s: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        title="Time to accept requests without a worker",
        description="How long requests are accepted after a live worker was last seen.",
    )
    redis_grace_s: float = Field(
        default=5.0,
        ge=0,
        le=300,
        title="Time to accept requests without Redis",
        description="How long new requests are accepted while Redis is unreachable.",
    )
    redis_memory_ratio: float = Field(
        default=0.7,
        gt=0,
        le=1,
        title="Maximum fraction of maxmemory in use",
        description="Fraction of Redis' maxmemory above which new requests are rejected: 429.",
    )
    drain_delay_s: float = Field(
        default=5.0,
        ge=0,
        le=300,
        title="After SIGTERM: time to keep serving",
        description="After SIGTERM: time to keep serving while load balancers take the gateway out.",
    )
    drain_grace_s: float = Field(
        default=30.0,
        ge=0,
        le=600,
        title="After that: time for requests to finish",
        description="After that: maximum time for requests in flight to finish.",
    )

    @cached_property
    def jobs(self) -> JobSettings:
        """Bounds and durability of jobs."""
        return JobSettings(
            timeout_s=self.job_timeout_s,
            ttl_s=self.job_ttl_s,
            max_inputs=self.max_job_inputs,
            max_body_bytes=self.max_job_body_bytes,
            bounds=JobBounds(
                jobs=self.max_open_jobs,
                inputs=self.max_owed_inputs,
                bytes=self.max_owed_bytes,
                upload_bytes=self.max_upload_bytes,
                tenant_share=self.max_tenant_job_share,
            ),
            min_bytes_per_s=self.min_upload_bytes_per_s,
            max_upload_s=self.max_upload_s,
            inputs_per_entry=self.inputs_per_entry,
            max_memory_ratio=self.redis_memory_ratio,
            max_result_ratio=self.max_result_ratio,
            durability=self.job_durability,
            durable_s=self.job_durable_s,
            durable_replicas=self.job_replicas,
            results_payload=self.results_payload,
            max_inline_bytes=self.max_inline_bytes,
        )
