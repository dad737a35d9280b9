"""The settings of a gateway in groups, for the code that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.messages import NO_RESULTS, PREDICT

Durability = Literal["none", "aof", "replicas"]
ResultsPayload = Literal["auto", "inline", "none"]


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

    `max_owed_inputs` bounds the inputs of all jobs that have no result yet, and `max_memory_ratio` the fraction of its
    maxmemory that Redis may use. `results_payload` and `max_inline_bytes` say what the results stream carries.
    """

    timeout_s: float
    ttl_s: float
    max_inputs: int
    max_body_bytes: int
    max_owed_inputs: int
    inputs_per_entry: int
    max_memory_ratio: float
    durability: Durability
    durable_s: float
    results_payload: ResultsPayload
    max_inline_bytes: int

    def inline_bytes(self, op: str) -> int:
        """Returns the maximum bytes of a job's results in the results stream: see JobSpec.max_inline_bytes."""
        if self.results_payload == "none":
            return NO_RESULTS
        return self.max_inline_bytes if self.results_payload == "inline" or op == PREDICT else 0
