"""A gateway's Prometheus metrics, in base units."""

from __future__ import annotations

from collections import Counter as Counts
from functools import cache

from prometheus_client import Counter, Gauge

from shared.process.histogram import Histogram

DURATION_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

REQUESTS = Counter("redbatch_requests", "Answered requests", ["route", "status"])
ERRORS = Counter(
    "redbatch_errors",
    "Requests answered with an error, by queue and error code; the queue is empty if none was found",
    ["queue", "code"],
)
DURATION = Histogram(
    "redbatch_request_duration_seconds", "Time from the head of a request to its answer", buckets=DURATION_BUCKETS_S
)
IN_FLIGHT = Gauge("redbatch_requests_in_flight", "Requests that wait for an answer")
IN_FLIGHT_BYTES = Gauge("redbatch_in_flight_bytes", "Bytes of the inputs and results of these requests")
CONNECTIONS = Gauge("redbatch_connections", "Open connections of clients")
CLOSED_CONNECTIONS = Counter(
    "redbatch_closed_connections",
    "Connections that the gateway closed: too many, no head in time, too many requests before an answer, or an answer "
    "that its client does not read",
    ["reason"],
)
UNSENT_BYTES = Gauge("redbatch_unsent_bytes", "Bytes of answers in memory that clients have not read")
REQUEST_INPUTS = Counter("redbatch_request_inputs", "Inputs in accepted requests")
COALESCED_REQUESTS = Counter("redbatch_coalesced_requests", "Requests that shared a stream entry with others")
CANCELLED_ENTRIES = Counter("redbatch_cancelled_entries", "Entries cancelled because no client waits for them")
RECONCILIATIONS = Counter("redbatch_settles", "Reconciliations of outstanding requests, by cause", ["cause"])
RESUBMITTED_ENTRIES = Counter("redbatch_resubmitted_entries", "Entries that were lost in Redis and added again")
MOVED_REQUESTS = Counter(
    "redbatch_moved_requests", "Requests sent again to another shard, as theirs had no Redis or no worker any more"
)
MIXED_ENTRIES = Counter(
    "redbatch_mixed_entries", "Entries run again because workers of several revisions ran parts of one request"
)
BEHIND_REQUESTS = Counter("redbatch_behind_requests", "Requests moved to bulk because their tenant has used its share")
LATE_REPLIES = Counter("redbatch_late_replies", "Replies for which no request waits any more")
CACHE_HITS = Counter("redbatch_cache_hits", "Inputs whose vector was in the cache")
CACHE_MISSES = Counter("redbatch_cache_misses", "Inputs whose vector was not in the cache")
UNCHARGED_TOKENS = Counter(
    "redbatch_uncharged_tokens", "Tokens from the cache that no quota paid, because Redis was slow or out of reach"
)
TENANT_REQUESTS = Counter("redbatch_tenant_requests", "Requests with a result, by tenant", ["queue", "tenant"])
TENANT_REFUSALS = Counter("redbatch_tenant_refusals", "Requests refused, by tenant", ["queue", "tenant"])
TENANT_FAILURES = Counter("redbatch_tenant_failures", "Requests that failed, by tenant", ["queue", "tenant"])
TENANT_CACHED_TOKENS = Counter(
    "redbatch_tenant_cached_tokens", "Tokens of vectors from the cache, by tenant", ["queue", "tenant"]
)
QUEUE_ENTRIES = Gauge("redbatch_queue_entries", "Entries in the queue, waiting and in flight", ["queue", "lane"])
QUEUE_PENDING = Gauge("redbatch_queue_pending_entries", "Entries that a worker has claimed", ["queue"])
QUEUE_INPUTS = Gauge("redbatch_queue_inputs", "Inputs in the queue", ["queue"])
QUEUE_TOKENS = Gauge("redbatch_queue_tokens", "Estimated tokens in the queue", ["queue"])
QUEUE_BYTES = Gauge("redbatch_queue_bytes", "Bytes of the inputs of functions in the queue", ["queue"])
QUEUE_AGE = Gauge("redbatch_queue_oldest_age_seconds", "Age of the oldest entry", ["queue", "lane"])
DEAD_LETTERS = Gauge("redbatch_queue_dead_letters", "Dead letters in the queue", ["queue"])
OPEN_JOBS = Gauge("redbatch_open_jobs", "Jobs that have not ended", ["queue"])
OWED_INPUTS = Gauge("redbatch_owed_job_inputs", "Inputs of jobs that have no result yet", ["queue"])
RESULT_BYTES = Gauge("redbatch_job_result_bytes", "Bytes of the results of jobs, kept and expected", ["queue"])
WORKERS = Gauge("redbatch_workers", "Live workers", ["queue", "state"])
SHARD_WORKERS = Gauge("redbatch_shard_workers", "Ready workers of a shard of the queue", ["queue", "shard"])
FLEET_RATE = Gauge("redbatch_fleet_tokens_per_second", "Throughput of all ready workers, once measured", ["queue"])
REDIS_MEMORY = Gauge(
    "redbatch_redis_memory_ratio", "Fraction of its maxmemory that Redis uses; 0 if it has no maxmemory", ["shard"]
)
REDIS_MEMORY_BYTES = Gauge("redbatch_redis_memory_bytes", "Bytes that Redis uses", ["shard"])
REDIS_PERSISTENCE_FAILED = Gauge(
    "redbatch_redis_persistence_failed",
    "1 if the last write of the append-only file or of the snapshot failed",
    ["shard"],
)
REDIS_EVICTS = Gauge(
    "redbatch_redis_evicts",
    "1 if Redis may remove keys when its memory is full, for want of maxmemory-policy noeviction; NaN while unknown",
    ["shard"],
)
REDIS_ROUND_TRIP = Histogram(
    "redbatch_redis_round_trip_seconds",
    "Time until Redis answers the poll that each gateway sends once a second",
    buckets=DURATION_BUCKETS_S,
)
REDIS_UP = Gauge("redbatch_redis_up", "1 while Redis answers this gateway", ["shard"])

QUEUE_GAUGES = (
    *(QUEUE_ENTRIES, QUEUE_PENDING, QUEUE_INPUTS, QUEUE_TOKENS, QUEUE_BYTES, QUEUE_AGE),
    *(WORKERS, SHARD_WORKERS, FLEET_RATE, DEAD_LETTERS, OPEN_JOBS, OWED_INPUTS, RESULT_BYTES),
)
TENANT_COUNTERS = (TENANT_REQUESTS, TENANT_REFUSALS, TENANT_FAILURES, TENANT_CACHED_TOKENS)
REDIS_GAUGES = (REDIS_MEMORY, REDIS_MEMORY_BYTES, REDIS_PERSISTENCE_FAILED, REDIS_EVICTS, SHARD_WORKERS)


@cache
def answers_counter(route: str, status: int) -> Counter:
    """Returns the counter of a route's answers with a status; cached: a look-up by labels is slower than counting."""
    return REQUESTS.labels(route, status)


def error_totals() -> dict[str, int]:
    """Returns the errors that this gateway has answered since its start, by code."""
    totals: Counts[str] = Counts()
    for metric in ERRORS.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                totals[sample.labels["code"]] += int(sample.value)
    return totals


def remove_queue(queue: str) -> None:
    """Removes the series of a queue."""
    for gauge in (*QUEUE_GAUGES, *TENANT_COUNTERS):
        gauge.remove_by_labels({"queue": queue})
