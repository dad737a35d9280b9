"""Settings of a gateway about requests: where they arrive, their bounds, the cache of vectors, limits of tenants."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from api.connection_settings import ConnectionSettings
from api.settings_groups import CacheSettings, EntryLimits, QueueLimits, RequestLimits, TenantSettings
from shared.codec import MAX_INPUT_BYTES
from shared.model_names import DEFAULT_MODEL, queue_slug
from shared.option_words import ValueForm
from shared.settings import Host, QueueName


class RequestSettings(ConnectionSettings):
    """Which requests a gateway accepts, and from whom."""

    host: Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the API; 0 takes a free one.")
    root_path: Annotated[str, ValueForm("a path such as /redbatch, without a slash at its end")] = Field(
        default="",
        pattern=r"^((/[A-Za-z0-9._~-]+)+)?$",
        title="Prefix of all paths, such as /redbatch",
        description="Prefix of all paths, such as /redbatch, where a proxy serves the gateway below one; whether the "
        "proxy removes it or not. No route may begin with it.",
    )
    access_log: bool = Field(
        default=False,
        title="Whether each request has a log line",
        description="Whether the log has a line for each request. Otherwise it has one for each that is refused or "
        "fails; of those that repeat, the first, and their number every 10 s.",
    )
    admin_host: Host = Field(default="127.0.0.1", description="Address of the admin port.")
    admin_port: int = Field(
        default=9090,
        ge=0,
        le=65535,
        title="Port of /metrics and the health checks",
        description="Port of /metrics, /livez, /readyz and /health; 0 takes a free one. Not set: 9090, or a free one "
        "if that is taken.",
    )
    auth: Literal["auto", "on", "off"] = Field(
        default="auto",
        title="Whether clients need an API key",
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
        title="Whether requests may name other models",
        description="Whether requests may name the model of another queue that workers of this Redis serve.",
    )
    request_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=300_000,
        title="Timeout of a request that sets none",
        description="Timeout of a request whose client sets none.",
    )
    request_timeout_per_input_ms: int = Field(
        default=50,
        ge=0,
        le=10_000,
        title="Time added to that for each input",
        description="Time added to that default for each input.",
    )
    max_inputs: int = Field(default=2_048, ge=1, le=1_000_000, description="Maximum number of inputs in one request.")
    max_body_bytes: int = Field(
        default=2_000_000,
        ge=1,
        title="Maximum body size for /embed",
        description="Maximum body size of a request to /embed, /batch_embed, or one of TEI's routes that is not named "
        "at max_v1_body_bytes.",
    )
    max_v1_body_bytes: int = Field(
        default=32 * 2**20,
        ge=1,
        title="Maximum body size for /v1/embeddings",
        description="Maximum body size of a request to /v1/embeddings, /v2/embed, /v1/embed, /rerank, /score, "
        "/classify, / or /invocations, and of a job as one JSON document.",
    )
    max_predict_body_bytes: int = Field(
        default=32 * 2**20,
        ge=1,
        title="Maximum body size for /predict",
        description="Maximum body size of a request to /predict.",
    )
    max_bodies_bytes: int = Field(
        default=256 * 2**20,
        ge=1,
        title="Maximum total size of arriving bodies",
        description="Maximum total size of all bodies that are received at a time, without those up to 64 KiB that "
        "arrive in one piece; above it: 429. Those over 64 KiB may have seven eighths of it, and those of one tenant, "
        "or without API keys of one address, four fifths.",
    )
    body_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        title="Maximum time for a body to arrive",
        description="Maximum time for a request's body to arrive.",
    )
    max_in_flight_bytes: int = Field(
        default=256 * 2**20,
        ge=2**20,
        title="Maximum total size of requests in flight",
        description="Maximum total size of the inputs and results of the requests that a gateway is answering; above "
        "it: 429. It is shared as max_bodies_bytes is.",
    )
    max_input_chars: int = Field(default=122_880, ge=1, description="Maximum length of a text, in characters.")
    max_input_bytes: int = Field(
        default=8 * 2**20,
        ge=1,
        le=MAX_INPUT_BYTES,
        title="Maximum size of an input of a function",
        description="Maximum size of an input of a function: bytes of its JSON, or of its binary content.",
    )
    inputs_per_entry: int = Field(
        default=32,
        ge=1,
        le=1_024,
        title="Maximum inputs in one stream entry",
        description="Maximum number of inputs in one stream entry; a larger request is split into several.",
    )
    requests_per_entry: int = Field(
        default=16,
        ge=1,
        le=1_024,
        title="Maximum requests in one stream entry",
        description="Maximum number of small requests in one stream entry: under load, those that arrive together "
        "share entries, which costs Redis and workers less. 1: requests share none.",
    )
    min_entries_per_worker: int = Field(
        default=4,
        ge=1,
        title="Entries per worker before requests share",
        description="Requests share stream entries only as far as each worker still has this number of entries of the "
        "gateway. Where the number of workers follows the number of entries, it must be a multiple of the target.",
    )
    max_queue_inputs: int = Field(
        default=20_000,
        ge=1,
        title="Maximum inputs in the whole queue",
        description="Maximum number of inputs that wait or run in the whole queue, beside those of jobs, which have "
        "separate bounds; above it: 429.",
    )
    max_queue_tokens: int = Field(
        default=2_000_000,
        ge=1,
        title="Maximum tokens in the whole queue",
        description="The same bound in tokens, estimated from the length of texts; an input of a function counts as 1.",
    )
    max_queue_bytes: int = Field(
        default=512 * 2**20,
        ge=1,
        title="Functions: maximum bytes in the queue",
        description="The same bound in bytes of the inputs of functions, which are in Redis until they are answered. "
        "Inputs of jobs do not count: their bounds are max_owed_inputs, max_owed_bytes, and 64 MiB of them in the "
        "lanes at a time.",
    )
    reply_connections: int = Field(
        default=8,
        ge=2,
        le=64,
        title="Redis connections that wait for replies",
        description="Redis connections that wait for replies, regardless of the number of requests.",
    )
    cache_bytes: int = Field(
        default=0,
        ge=0,
        title="Maximum bytes of cached vectors; 0: none",
        description="Maximum bytes of Redis for cached vectors, shared by all gateways of a queue; 0: no cache.",
    )
    cache_ttl_s: float = Field(
        default=86_400.0,
        gt=0,
        le=31_536_000,
        title="How long a vector stays in the cache",
        description="Maximum time that a vector stays in the cache.",
    )
    cache_per_tenant: bool = Field(
        default=False,
        title="Whether each tenant has a separate cache",
        description="Whether a tenant gets from the cache only what it has requested itself. Otherwise an answer tells "
        "(by x-batch-size: 0, and its time) that someone has requested the same text.",
    )
    cache_hits_count: bool = Field(
        default=False,
        title="Whether cache hits count against quotas",
        description="Whether inputs that are answered from the cache count against quotas.",
    )
    tenant_tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        title="Default rate limit of a tenant; 0: none",
        description="Default rate limit of a tenant, in tokens per second, where its key sets none; above it: 429. "
        "0: no limit.",
    )
    tenant_burst_tokens: int = Field(
        default=0,
        ge=0,
        le=10**12,
        title="Maximum tokens of a tenant at once",
        description="Maximum tokens that a tenant may use at once; 0: ten seconds' worth of its rate.",
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
    def entry_limits(self) -> EntryLimits:
        """What a stream entry may contain."""
        return EntryLimits(self.inputs_per_entry, self.requests_per_entry, self.min_entries_per_worker)

    @cached_property
    def tenants(self) -> TenantSettings:
        """Default rate limit of a tenant."""
        return TenantSettings(self.tenant_tokens_per_s, self.tenant_burst_tokens)

    @cached_property
    def cache(self) -> CacheSettings:
        """The cache of vectors."""
        return CacheSettings(self.cache_bytes, self.cache_ttl_s, self.cache_per_tenant, self.cache_hits_count)
