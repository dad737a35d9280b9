"""The settings of a gateway in groups, for the code that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.messages import CLASSIFY, NO_RESULTS, PREDICT, SCORE
from shared.tenants import JobBounds

Durability = Literal["none", "aof", "replicas"]
ResultsPayload = Literal["auto", "inline", "none"]


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Maximum of a request's head: bytes with its first line, header fields, and bytes of its URL."""

    max_bytes: int
    max_fields: int
    max_url_bytes: int


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum open connections, in all and of one address, and bytes of all heads in memory.

    `max_unfinished_heads_bytes` bounds those of connections that wait for the rest of a head, or of the body of an
    answered request. `head_timeout_s` is the maximum time for a head to arrive.
    """

    max_connections: int
    max_per_address: int
    max_heads_bytes: int
    max_unfinished_heads_bytes: int
    head_timeout_s: float


@dataclass(frozen=True, slots=True)
class UnsentLimits:
    """Maximum bytes of answers in memory that are not sent, of one connection and in all.

    `timeout_s` is the maximum time in which a client receives nothing of what is unsent.
    """

    max_per_connection: int
    max_bytes: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of one request: inputs, the length of an input, bytes of a body, and its default time.

    A text is bounded in characters, an input of a function in bytes.
    """

    max_inputs: int
    max_input_chars: int
    max_input_bytes: int
    max_body_bytes: int
    max_v1_body_bytes: int
    max_predict_body_bytes: int
    body_timeout_s: float
    timeout_ms: int
    timeout_per_input_ms: int


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of the whole queue, waiting and running: `max_tokens` are estimated, `max_bytes` those of functions."""

    max_inputs: int
    max_tokens: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """Bounds of a stream entry, and how many entries each worker has at least before requests share them."""

    max_inputs: int
    max_requests: int
    min_per_worker: int


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """Default rate limit of a tenant. `tokens_per_s` 0: no limit; `burst_tokens` 0: derived from the rate."""

    tokens_per_s: float
    burst_tokens: int


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The cache of vectors in Redis. `max_bytes` 0: no cache.

    Tenants share it unless it is `per_tenant`. Cached vectors count against quotas if `hits_count`.
    """

    max_bytes: int
    ttl_s: float
    per_tenant: bool
    hits_count: bool


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Bounds and durability of jobs.

    `bounds` are those of all jobs that have not ended. `max_memory_ratio` is the fraction of its maxmemory that Redis
    may use, and `max_result_ratio` that for results of jobs. `min_bytes_per_s` is the rate at which lines must arrive
    (0: any), and `max_upload_s` the maximum time for that. `results_payload` and `max_inline_bytes` say what the
    results stream carries.
    """

    timeout_s: float
    ttl_s: float
    max_inputs: int
    max_body_bytes: int
    bounds: JobBounds
    min_bytes_per_s: int
    max_upload_s: float
    inputs_per_entry: int
    max_memory_ratio: float
    max_result_ratio: float
    durability: Durability
    durable_s: float
    durable_replicas: int
    results_payload: ResultsPayload
    max_inline_bytes: int

    def inline_bytes(self, op: str) -> int:
        """Returns the maximum bytes of a job's results in the results stream: see JobSpec.max_inline_bytes.

        Of scores it has a link: what is stored are logits.
        """
        if self.results_payload == "none":
            return NO_RESULTS
        is_inline = op == PREDICT or (self.results_payload == "inline" and op not in (SCORE, CLASSIFY))
        return self.max_inline_bytes if is_inline else 0
