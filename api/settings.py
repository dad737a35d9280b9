"""Settings of a gateway: flat, for flags and environment variables."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from api.connection_settings import ConnectionSettings
from api.settings_groups import (
    CacheSettings,
    Durability,
    JobSettings,
    QueueLimits,
    RequestLimits,
    ResultsPayload,
    TenantSettings,
)
from shared.codec import MAX_INPUT_BYTES
from shared.option_words import ValueForm
from shared.settings import DEFAULT_MODEL, Host, QueueName, queue_slug
from shared.tenants import JobBounds


class GatewaySettings(ConnectionSettings):
    """Settings that a gateway reads once at start, from `REDBATCH_*` variables and command-line flags."""

    host: Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the API; 0 takes a free one.")
    root_path: Annotated[str, ValueForm("a path such as /redbatch, without a slash at its end")] = Field(
        default="",
        pattern=r"^((/[A-Za-z0-9._~-]+)+)?$",
        description="Prefix of all paths, such as /redbatch, where a proxy serves the gateway below one; whether the "
        "proxy removes it or not. No route may begin with it.",
    )
    access_log: bool = Field(
        default=False,
        description="Whether the log has a line for each request. Otherwise it has one for each that is refused or "
        "fails; of those that repeat, the first, and their number every 10 s.",
    )
    admin_host: Host = Field(default="127.0.0.1", description="Address of the admin port.")
    admin_port: int = Field(
        default=9090,
        ge=0,
        le=65535,
        description="Port of /metrics, /livez, /readyz and /health; 0 takes a free one. Not set: 9090, or a free one "
        "if that is taken.",
    )
    auth: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether clients need an API key (redbatch keys create). auto requires one unless host is the "
        "loopback, and does not start while no key exists; on requires one and starts anyway.",
    )
    queue: QueueName | None = Field(
        default=None,
        description="Queue of requests that name no model. When not set: the only queue that workers serve; if there "
        "are several, such requests are rejected (minilm with --all-queues false).",
    )
    all_queues: bool = Field(
        default=True,
        description="Whether requests may name the model of another queue that workers of this Redis serve.",
    )
    request_timeout_ms: int = Field(
        default=10_000, ge=1, le=300_000, description="Timeout of a request whose client sets none."
    )
    request_timeout_per_input_ms: int = Field(
        default=50, ge=0, le=10_000, description="Time added to that default for each input."
    )
    max_inputs: int = Field(default=2_048, ge=1, le=1_000_000, description="Maximum number of inputs in one request.")
    max_body_bytes: int = Field(default=2_000_000, ge=1, description="Maximum body size of a request to /embed.")
    max_v1_body_bytes: int = Field(
        default=32 * 2**20, ge=1, description="Maximum body size of a request to /v1/embeddings."
    )
    max_predict_body_bytes: int = Field(
        default=32 * 2**20, ge=1, description="Maximum body size of a request to /predict."
    )
    max_bodies_bytes: int = Field(
        default=256 * 2**20,
        ge=1,
        description="Maximum total size of all bodies that are received at a time, without those up to 64 KiB that "
        "arrive in one piece; above it: 429. Those over 64 KiB may have seven eighths of it, and those of one tenant, "
        "or without API keys of one address, four fifths.",
    )
    body_timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Maximum time for a request's body to arrive."
    )
    max_in_flight_bytes: int = Field(
        default=256 * 2**20,
        ge=2**20,
        description="Maximum total size of the inputs and results of the requests that a gateway is answering; above "
        "it: 429. It is shared as max_bodies_bytes is.",
    )
    max_input_chars: int = Field(default=122_880, ge=1, description="Maximum length of a text, in characters.")
    max_input_bytes: int = Field(
        default=8 * 2**20,
        ge=1,
        le=MAX_INPUT_BYTES,
        description="Maximum size of an input of a function: bytes of its JSON, or of its binary content.",
    )
    inputs_per_entry: int = Field(
        default=32,
        ge=1,
        le=1_024,
        description="Maximum number of inputs in one stream entry; a larger request is split into several.",
    )
    max_queue_inputs: int = Field(
        default=20_000,
        ge=1,
        description="Maximum number of inputs that wait or run in the whole queue; above it: 429.",
    )
    max_queue_tokens: int = Field(
        default=2_000_000,
        ge=1,
        description="The same bound in tokens, estimated from the length of texts; an input of a function counts as 1.",
    )
    max_queue_bytes: int = Field(
        default=512 * 2**20,
        ge=1,
        description="The same bound in bytes of the inputs of functions, which are in Redis until they are answered. "
        "Inputs of jobs do not count: their bounds are max_owed_inputs, max_owed_bytes, and 64 MiB of them in the "
        "lanes at a time.",
    )
    reply_connections: int = Field(
        default=8,
        ge=2,
        le=64,
        description="Redis connections that wait for replies, regardless of the number of requests.",
    )
    cache_bytes: int = Field(
        default=0,
        ge=0,
        description="Maximum bytes of Redis for cached vectors, shared by all gateways of a queue; 0: no cache.",
    )
    cache_ttl_s: float = Field(
        default=86_400.0, gt=0, le=31_536_000, description="Maximum time that a vector stays in the cache."
    )
    cache_per_tenant: bool = Field(
        default=False,
        description="Whether a tenant gets from the cache only what it has requested itself. Otherwise an answer tells "
        "(by x-batch-size: 0, and its time) that someone has requested the same text.",
    )
    cache_hits_count: bool = Field(
        default=False, description="Whether inputs that are answered from the cache count against quotas."
    )
    tenant_tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="Default rate limit of a tenant, in tokens per second, where its key sets none; above it: 429. "
        "0: no limit.",
    )
    tenant_burst_tokens: int = Field(
        default=0,
        ge=0,
        le=10**12,
        description="Maximum tokens that a tenant may use at once; 0: ten seconds' worth of its rate.",
    )
    job_timeout_s: float = Field(
        default=86_400.0,
        gt=0,
        le=604_800,
        description="Timeout of a job; then it expires and keeps the results that it has.",
    )
    job_ttl_s: float = Field(
        default=3_600.0, gt=0, le=604_800, description="How long a job and its results are kept after the job ends."
    )
    max_job_inputs: int = Field(
        default=1_000_000, ge=1, le=10_000_000, description="Maximum number of inputs in one job."
    )
    max_job_body_bytes: int = Field(
        default=256 * 10**6,
        ge=1,
        description="Maximum body size of a job that is sent as lines (application/x-ndjson).",
    )
    max_owed_inputs: int = Field(
        default=2_000_000,
        ge=1,
        description="Maximum number of inputs without a result, over all jobs of a queue; above it: 503.",
    )
    max_open_jobs: int = Field(
        default=2_000,
        ge=1,
        le=10_000,
        description="Maximum number of jobs of a queue that have not ended, with those being received; above it: 503.",
    )
    max_owed_bytes: int = Field(
        default=2 * 2**30,
        ge=1,
        description="Maximum bytes of inputs without a result, over all jobs of a queue, with those being received; "
        "above it: 503.",
    )
    max_upload_bytes: int = Field(
        default=512 * 2**20,
        ge=1,
        description="Maximum bytes in Redis of jobs of a queue that are being received; above it: 503.",
    )
    max_result_ratio: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Maximum fraction of Redis' maxmemory for the results of a queue's jobs: those that are kept, and "
        "those that are expected; above it: 503. No bound if Redis has no maxmemory.",
    )
    max_tenant_job_share: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="Share of each of these maxima that a single tenant of weight 1 may have; above it: 429. Several "
        "divide more than that by weight, and a part stays free for the next. 1: no bound for a tenant.",
    )
    min_upload_bytes_per_s: int = Field(
        default=4_096,
        ge=0,
        description="Minimum rate, after body_timeout_s, at which a job in lines must arrive; below it: 408. 0: none.",
    )
    max_upload_s: float = Field(
        default=3_600.0,
        gt=0,
        le=86_400,
        description="Maximum time for which a gateway waits for the pieces of a job in lines; above it: 408.",
    )
    job_durability: Durability = Field(
        default="none",
        description="What must hold a job before it is accepted: the memory of Redis (none), its append-only file, "
        "written to disk (aof), or a replica (replicas).",
    )
    job_durable_s: float = Field(
        default=2.0, gt=0, le=60, description="Maximum time to reach that durability; after it: 503."
    )
    results_payload: ResultsPayload = Field(
        default="auto",
        description="What the results stream carries of a job that ended: its results (inline), or neither results nor "
        "a link to them (none). auto: the outputs of a function, and a link to vectors.",
    )
    max_inline_bytes: int = Field(
        default=64 * 2**10,
        ge=0,
        le=2**20,
        description="Maximum bytes of results that the results stream carries inline; a link replaces larger ones.",
    )
    worker_grace_s: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="How long requests are accepted after a live worker was last seen.",
    )
    redis_grace_s: float = Field(
        default=5.0, ge=0, le=300, description="How long new requests are accepted while Redis is unreachable."
    )
    redis_memory_ratio: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Fraction of Redis' maxmemory above which new requests are rejected: 429.",
    )
    drain_delay_s: float = Field(
        default=5.0,
        ge=0,
        le=300,
        description="After SIGTERM: time to keep serving while load balancers take the gateway out.",
    )
    drain_grace_s: float = Field(
        default=30.0, ge=0, le=600, description="After that: maximum time for requests in flight to finish."
    )

    @property
    def initial_queue(self) -> str:
        """The queue of requests that name no model, until another queue is found to be the only one."""
        return self.queue or queue_slug(DEFAULT_MODEL)

    @cached_property
    def requests(self) -> RequestLimits:
        """Bounds of one request."""
        return RequestLimits(
            max_inputs=self.max_inputs,
            max_input_chars=self.max_input_chars,
            max_input_bytes=self.max_input_bytes,
            max_body_bytes=self.max_body_bytes,
            max_v1_body_bytes=self.max_v1_body_bytes,
            max_predict_body_bytes=self.max_predict_body_bytes,
            body_timeout_s=self.body_timeout_s,
            timeout_ms=self.request_timeout_ms,
            timeout_per_input_ms=self.request_timeout_per_input_ms,
        )

    @cached_property
    def queue_limits(self) -> QueueLimits:
        """Bounds of the whole queue."""
        return QueueLimits(self.max_queue_inputs, self.max_queue_tokens, self.max_queue_bytes)

    @cached_property
    def tenants(self) -> TenantSettings:
        """Default rate limit of a tenant."""
        return TenantSettings(self.tenant_tokens_per_s, self.tenant_burst_tokens)

    @cached_property
    def cache(self) -> CacheSettings:
        """The cache of vectors."""
        return CacheSettings(self.cache_bytes, self.cache_ttl_s, self.cache_per_tenant, self.cache_hits_count)

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
            results_payload=self.results_payload,
            max_inline_bytes=self.max_inline_bytes,
        )
