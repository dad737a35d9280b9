"""A gateway's metrics, in base units."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

DURATION_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

REQUESTS = Counter("redbatch_requests", "Answered requests", ["route", "status"])
ERRORS = Counter(
    "redbatch_errors",
    "Those of them that an error answered, by its code; and the queue, where one was found before",
    ["queue", "code"],
)
DURATION = Histogram(
    "redbatch_request_duration_seconds", "From a request's head to its answer", buckets=DURATION_BUCKETS_S
)
IN_FLIGHT = Gauge("redbatch_requests_in_flight", "Requests that wait for an answer")
REQUEST_INPUTS = Counter("redbatch_request_inputs", "Inputs in accepted requests")
CANCELLED_ENTRIES = Counter("redbatch_cancelled_entries", "Entries taken back because nobody waits for them")
RECONCILIATIONS = Counter("redbatch_settles", "Looks after outstanding requests, by cause", ["cause"])
RESUBMITTED_ENTRIES = Counter("redbatch_resubmitted_entries", "Entries that were lost in Redis and added again")
MIXED_ENTRIES = Counter(
    "redbatch_mixed_entries", "Entries run again, since workers of several revisions ran parts of a request"
)
BEHIND_REQUESTS = Counter("redbatch_behind_requests", "Requests put into bulk, since their tenant has had its share")
LATE_REPLIES = Counter("redbatch_late_replies", "Replies that nobody waits for")
CACHE_HITS = Counter("redbatch_cache_hits", "Inputs whose vector was in the cache")
CACHE_MISSES = Counter("redbatch_cache_misses", "Inputs whose vector was not in the cache")
QUEUE_ENTRIES = Gauge("redbatch_queue_entries", "Entries in the queue, waiting and in flight", ["queue", "lane"])
QUEUE_PENDING = Gauge("redbatch_queue_pending_entries", "Entries that a worker holds", ["queue"])
QUEUE_INPUTS = Gauge("redbatch_queue_inputs", "Inputs in the queue", ["queue"])
QUEUE_TOKENS = Gauge("redbatch_queue_tokens", "Estimated tokens in the queue", ["queue"])
QUEUE_AGE = Gauge("redbatch_queue_oldest_age_seconds", "Age of the oldest entry", ["queue", "lane"])
DEAD_LETTERS = Gauge("redbatch_queue_dead_letters", "Dead letters that are kept", ["queue"])
OPEN_JOBS = Gauge("redbatch_open_jobs", "Jobs that have not ended", ["queue"])
OWED_INPUTS = Gauge("redbatch_owed_job_inputs", "Inputs of jobs that have no result yet", ["queue"])
WORKERS = Gauge("redbatch_workers", "Live workers", ["queue", "state"])
FLEET_RATE = Gauge(
    "redbatch_fleet_tokens_per_second", "What the ready workers get done together, once measured", ["queue"]
)
REDIS_MEMORY = Gauge("redbatch_redis_memory_ratio", "Share of its maxmemory that Redis uses; 0 when it has none")
REDIS_MEMORY_BYTES = Gauge("redbatch_redis_memory_bytes", "Bytes that Redis uses")
REDIS_PERSISTENCE_FAILED = Gauge(
    "redbatch_redis_persistence_failed", "1 if Redis failed when it last wrote its append-only file or its snapshot"
)
REDIS_ROUND_TRIP = Histogram(
    "redbatch_redis_round_trip_seconds",
    "Until Redis answers what each gateway asks it once a second",
    buckets=DURATION_BUCKETS_S,
)
REDIS_UP = Gauge("redbatch_redis_up", "1 while Redis answers this gateway")

QUEUE_GAUGES = (
    *(QUEUE_ENTRIES, QUEUE_PENDING, QUEUE_INPUTS, QUEUE_TOKENS, QUEUE_AGE),
    *(WORKERS, FLEET_RATE, DEAD_LETTERS, OPEN_JOBS, OWED_INPUTS),
)
REDIS_GAUGES = (REDIS_MEMORY, REDIS_MEMORY_BYTES, REDIS_PERSISTENCE_FAILED)


@cache
def answers_counter(route: str, status: int) -> Counter:
    """Returns the counter of a route's answers with a status: to find it by its labels takes longer than to count."""
    return REQUESTS.labels(route, status)


def remove_queue(queue: str) -> None:
    """Shows nothing of a queue any more."""
    for gauge in QUEUE_GAUGES:
        gauge.remove_by_labels({"queue": queue})
