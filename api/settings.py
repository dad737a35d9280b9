"""Settings of a gateway."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.settings import DEFAULT_MODEL, QueueName, QueueSettings, queue_slug


class GatewaySettings(QueueSettings):
    """What a gateway reads once at start, from `REDBATCH_*` variables and command-line flags."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the API; 0 takes a free one.")
    admin_host: str = Field(default="127.0.0.1", description="Address of the admin port.")
    admin_port: int = Field(
        default=9090, ge=0, le=65535, description="Port of /metrics, /livez and /readyz; 0 takes a free one."
    )
    auth: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether clients need a key (redbatch keys create): auto asks for one unless host is the loopback, "
        "and does not start while there is none; on starts anyway.",
    )
    queue: QueueName = Field(
        default=queue_slug(DEFAULT_MODEL),
        description="Queue of requests that name no model: the slug of the model's name.",
    )
    all_queues: bool = Field(
        default=True,
        description="Whether requests may name the model of another queue that workers of this Redis serve.",
    )
    request_timeout_ms: int = Field(
        default=10_000, ge=1, le=300_000, description="Time for a request whose client names none."
    )
    request_timeout_per_input_ms: int = Field(
        default=50, ge=0, le=10_000, description="Time added to it for each input."
    )
    max_inputs: int = Field(default=2_048, ge=1, le=1_000_000, description="Most inputs in one request.")
    max_body_bytes: int = Field(default=2_000_000, ge=1, description="Largest body of a request to /embed.")
    max_v1_body_bytes: int = Field(
        default=32 * 2**20,
        ge=1,
        description="Largest body of a request to /v1/embeddings.",
    )
    max_bodies_bytes: int = Field(
        default=256 * 2**20, ge=1, description="Bytes of all bodies over 64 KiB that come in at a time; beyond: 429."
    )
    body_timeout_s: float = Field(default=30.0, gt=0, le=3600, description="Time for a request's body to arrive.")
    max_input_chars: int = Field(default=122_880, ge=1, description="Longest input, in characters.")
    inputs_per_entry: int = Field(
        default=32, ge=1, le=1_024, description="Inputs in one stream entry; a larger request becomes several."
    )
    max_queue_inputs: int = Field(
        default=20_000, ge=1, description="Inputs that may wait or run in the whole queue; beyond them: 429."
    )
    max_queue_tokens: int = Field(
        default=2_000_000, ge=1, description="The same in tokens, as estimated from the length of inputs."
    )
    reply_connections: int = Field(
        default=8, ge=2, le=64, description="Redis connections that wait for replies, however many requests there are."
    )
    cache_bytes: int = Field(
        default=0,
        ge=0,
        description="Bytes of Redis for vectors that were computed before, shared by all gateways of a queue; 0: none.",
    )
    cache_ttl_s: float = Field(
        default=86_400.0, gt=0, le=31_536_000, description="How long a vector is kept there at most."
    )
    tenant_tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="Tokens a second that a tenant may have whose key says nothing of it; beyond: 429. 0: no limit.",
    )
    tenant_burst_tokens: int = Field(
        default=0, ge=0, le=10**12, description="So many of them at once; 0: as many as come in ten seconds."
    )
    job_timeout_s: float = Field(
        default=86_400.0, gt=0, le=604_800, description="Time for a job, after which it expires with what it has."
    )
    job_ttl_s: float = Field(
        default=3_600.0, gt=0, le=604_800, description="How long a job and its results are kept after it has ended."
    )
    max_job_inputs: int = Field(default=1_000_000, ge=1, le=10_000_000, description="Most inputs in one job.")
    max_job_body_bytes: int = Field(
        default=256 * 10**6, ge=1, description="Largest body of a job that comes as lines (application/x-ndjson)."
    )
    max_owed_inputs: int = Field(
        default=2_000_000, ge=1, description="Inputs of all jobs that may be without a result; beyond them: 503."
    )
    job_durability: Literal["none", "aof", "replicas"] = Field(
        default="none",
        description="What a job has to have reached before it is accepted: Redis' memory; its append-only file, "
        "written to disk; or a replica.",
    )
    job_durable_s: float = Field(default=2.0, gt=0, le=60, description="Time for that; beyond: 503.")
    worker_grace_s: float = Field(
        default=60.0, ge=0, le=3600, description="How long requests are taken after the last worker was seen."
    )
    redis_grace_s: float = Field(
        default=5.0, ge=0, le=300, description="How long new requests are still taken while Redis is out of reach."
    )
    redis_memory_ratio: float = Field(
        default=0.7, gt=0, le=1, description="Share of Redis' maxmemory above which nothing new is taken: 429."
    )
    drain_delay_s: float = Field(
        default=5.0, ge=0, le=300, description="After SIGTERM: time to serve while load balancers look away."
    )
    drain_grace_s: float = Field(
        default=30.0, ge=0, le=600, description="After that: time for the requests in flight to finish."
    )
