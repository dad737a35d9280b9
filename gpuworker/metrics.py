"""Metrics of a worker, in base units."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from shared.keys import RELEASED
from shared.process.histogram import Histogram
from shared.usage_counts import Usage

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512)
TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

QUEUE_WAIT = Histogram(
    "redbatch_queue_wait_seconds", "Time from the submission of an entry to the start of its run", buckets=SECONDS
)
BATCH_SIZE = Histogram("redbatch_batch_size", "Number of inputs in a batch", buckets=SIZES)
BATCH_TOKENS = Histogram("redbatch_batch_tokens", "Number of tokens in a batch, without padding", buckets=TOKENS)
BATCH_PADDING = Histogram(
    "redbatch_batch_padding_ratio",
    "Fraction of a batch that is padding",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8),
)
INFERENCE = Histogram("redbatch_batch_inference_seconds", "Run time of a batch in the model", buckets=SECONDS)
BATCH_GAP = Histogram(
    "redbatch_batch_gap_seconds", "Time from the end of a batch to the start of the next", buckets=SECONDS
)
DEVICE_BUSY = Counter(
    "redbatch_device_busy_seconds",
    "Time from the first kernel of a batch to its last, by the clock of the GPU; 0 for other devices",
    ["worker"],
)
TENANT_INPUTS = Counter("redbatch_tenant_inputs", "Inputs that were answered, by tenant", ["queue", "tenant"])
TENANT_TOKENS = Counter("redbatch_tenant_tokens", "Tokens of these that the model read", ["queue", "tenant"])
TENANT_DEVICE = Counter(
    "redbatch_tenant_device_seconds", "Run time of batches in the model, by tenant", ["queue", "tenant"]
)
INPUTS = Counter("redbatch_inputs", "Inputs that the model has run")
FAILURES = Counter("redbatch_failures", "Entries answered with an error", ["code"])
MODEL_ERRORS = Counter(
    "redbatch_model_errors", "Exceptions that the model raised, by their type, in batches and their parts", ["type"]
)
MAX_ERROR_TYPES = 50
"""More types of exceptions than this count as OTHER_ERROR: a class may make types as it runs."""
OTHER_ERROR = "other"
CIRCUIT_OPENED = Counter(
    "redbatch_circuit_opened", "Times that a worker stopped claiming because its model failed on every batch"
)
COMMITS = Counter(
    "redbatch_commits",
    "Entries by the outcome of their commit",
    ["outcome"],
)
COMMITS_ANSWERED, COMMITS_FOUND_NOTHING = COMMITS.labels("answered"), COMMITS.labels("found nothing")
"""Looked up once: a look-up by labels is slower than counting."""

SILENT = "silent"
RECLAIMED = Counter(
    "redbatch_reclaimed",
    "Entries taken over from other workers: released by a worker, or of a worker that is silent",
    ["origin"],
)
RECLAIMED.labels(RELEASED)  # from the start: otherwise the first takeover would not be an increase
RECLAIMED.labels(SILENT)
DROPPED = Counter("redbatch_dropped", "Entries dropped because they were cancelled or taken over")
HANDED_BACK = Counter("redbatch_handed_back", "Entries handed back before they began to run")
DEAD_LETTERS = Counter(
    "redbatch_dead_letters", "Entries given up because the engine died, or a passing exception came, at each attempt"
)
JOB_ENTRIES = Counter("redbatch_job_entries", "Entries of jobs that this worker added to the lanes, by reason", ["why"])
ENGINE_RESTARTS = Counter("redbatch_engine_restarts", "Engine starts after the first")
ENGINE_HANGS = Counter("redbatch_engine_hangs", "Engines killed because they made no progress")
HELD = Gauge("redbatch_held_entries", "Entries claimed and not committed", ["worker"])
MAX_TOKENS = Gauge(
    "redbatch_batch_tokens_limit",
    "Maximum tokens in a batch: as set, or less after a batch ran out of memory",
    ["worker"],
)
TOKEN_RATE = Gauge("redbatch_tokens_per_second", "Measured rate of the engine, in estimated tokens", ["worker"])
UP = Gauge("redbatch_worker_up", "1 while the engine is ready", ["worker", "model"])
LEASE_LEFT = Gauge(
    "redbatch_gpu_lease_left_seconds",
    "Time until the engine must leave its GPU if its lease is not renewed; 0 without a lease",
    ["worker"],
)
LEASE_WAIT = Histogram("redbatch_gpu_lease_wait_seconds", "Time to acquire a GPU lease", buckets=SECONDS)
LEASE_LATE_RENEWALS = Counter(
    "redbatch_gpu_lease_late_renewals",
    "Renewals of a GPU lease that were not done in half of the time from when they are due until the engine must end",
)
LEASES_LOST = Counter("redbatch_gpu_leases_lost", "GPU leases that expired or went to another worker")


def count_usage(labels: tuple[str, str], usage: Usage) -> None:
    """Counts what a tenant has used of a queue, which are the labels."""
    TENANT_INPUTS.labels(*labels).inc(usage.inputs)
    TENANT_TOKENS.labels(*labels).inc(usage.tokens)
    TENANT_DEVICE.labels(*labels).inc(usage.device_ms / 1000)
