"""The memory of Redis that one queue takes at most: what each bound of its gateways and workers may hold there."""

from __future__ import annotations

from typing import NamedTuple

from api.dispatch.replies import MAX_COLLECT_BYTES
from api.dispatch.submitter import MAX_BYTES as MAX_SUBMIT_BYTES
from api.memory_bounds import KIB, MIB, MemoryBound, largest_body
from api.settings import GatewaySettings
from shared import feed_window
from shared.codec import MAX_BODY_BYTES
from shared.consumer import MAX_CLAIM_BYTES, MAX_DEAD_BODY_BYTES
from shared.jobs import MAX_RESULTS
from shared.messages import MAX_OUTPUTS_BYTES
from shared.usage import KEPT_HOURS
from shared.usage_counts import MAX_ROWS

OVERHEAD = 1.5
"""Bytes of Redis for each byte of inputs or results: measured 1.45 for texts of 2,000 characters."""

ENTRY_BYTES = 512
"""Of an entry beside its inputs, or of its replies beside their results: measured 310, and 440."""

DEAD_LETTER_BYTES, LISTED_BYTES, TENANT_BYTES = MAX_DEAD_BODY_BYTES + 2 * KIB, KIB, 256
"""Of a dead letter, of an entry of the results stream beside the results, and of a tenant's account."""

USAGE_BYTES = 200
"""Of a row of what tenants have used."""

NUM_TENANTS = 4_097
"""MAX_TENANTS of shared/lua/tenant_limits.lua, and the account of all others."""

PROGRAM_BYTES = 16 * MIB
"""Redis itself, its scripts, and the keys of workers, GPUs and API keys."""


class ClusterSize(NamedTuple):
    """What the memory of Redis depends on beside the settings of gateways.

    `max_memory_bytes` is its maxmemory, and `max_dead_letters` is the setting of workers.
    """

    gateways: int
    workers: int
    max_memory_bytes: int
    max_dead_letters: int


def redis_memory_bounds(settings: GatewaySettings, cluster: ClusterSize) -> list[MemoryBound]:
    """Returns the maximum of each part of what a queue has in Redis; their sum is that of the queue."""
    in_flight = max(settings.max_in_flight_bytes, largest_body(settings))
    return [
        MemoryBound("Redis itself, and the keys of workers and API keys", "", PROGRAM_BYTES),
        MemoryBound(
            "requests in the lanes, and their replies",
            f"`max_in_flight_bytes` × {OVERHEAD} for each gateway, and `max_queue_inputs` × {ENTRY_BYTES} bytes",
            cluster.gateways * int(OVERHEAD * in_flight) + settings.max_queue_inputs * ENTRY_BYTES,
        ),
        MemoryBound(
            "inputs of open jobs, uploads included",
            f"`max_owed_bytes` × {OVERHEAD}",
            int(OVERHEAD * settings.max_owed_bytes),
        ),
        MemoryBound(
            "these a second time, in the lanes",
            f"fixed: {feed_window.MAX_BYTES // MIB} MiB and an entry, × {OVERHEAD}",
            int(OVERHEAD * (feed_window.MAX_BYTES + MAX_BODY_BYTES)),
        ),
        MemoryBound(
            "results of jobs",
            "`max_result_ratio` × maxmemory",
            int(settings.max_result_ratio * cluster.max_memory_bytes),
        ),
        *_fixed_bounds(settings, cluster),
    ]


def _fixed_bounds(settings: GatewaySettings, cluster: ClusterSize) -> list[MemoryBound]:
    """Returns those that do not grow with requests and jobs."""
    per_gateway = MAX_SUBMIT_BYTES + MAX_COLLECT_BYTES + (1 + settings.reply_connections) * MAX_OUTPUTS_BYTES
    return [
        MemoryBound(
            "the results stream",
            f"{MAX_RESULTS:,} × (`max_inline_bytes` × {OVERHEAD} + {LISTED_BYTES // KIB} KiB)",
            MAX_RESULTS * (int(OVERHEAD * settings.max_inline_bytes) + LISTED_BYTES),
        ),
        MemoryBound("cached vectors", "`cache_bytes`", settings.cache_bytes),
        MemoryBound(
            "dead letters",
            f"`max_dead_letters` × {DEAD_LETTER_BYTES // KIB} KiB × {OVERHEAD}",
            int(OVERHEAD * cluster.max_dead_letters * DEAD_LETTER_BYTES),
        ),
        MemoryBound(
            "accounts of tenants", f"fixed: {NUM_TENANTS:,} × {TENANT_BYTES} bytes", NUM_TENANTS * TENANT_BYTES
        ),
        MemoryBound(
            "what tenants have used",
            f"fixed: {KEPT_HOURS} hours × {MAX_ROWS} × {USAGE_BYTES} bytes",
            KEPT_HOURS * MAX_ROWS * USAGE_BYTES,
        ),
        MemoryBound(
            "buffers of connections",
            f"{per_gateway // MIB} MiB for each gateway, {2 * MAX_CLAIM_BYTES // MIB} for each worker",
            cluster.gateways * per_gateway + cluster.workers * 2 * MAX_CLAIM_BYTES,
        ),
    ]


def max_redis_bytes(settings: GatewaySettings, cluster: ClusterSize) -> int:
    """Returns the memory that Redis takes at most for one queue, in bytes.

    That is the sum of the bounds, or what `redis_memory_ratio` of its maxmemory leaves: above it gateways accept
    nothing, and only the requests that were accepted before are in the lanes and get replies.
    """
    bounds = redis_memory_bounds(settings, cluster)
    total = sum(each.num_bytes for each in bounds)
    if not cluster.max_memory_bytes:
        return total
    requests, buffers = bounds[1].num_bytes, bounds[-1].num_bytes
    accepted = int(settings.redis_memory_ratio * cluster.max_memory_bytes) + requests + buffers
    return min(total, accepted, cluster.max_memory_bytes)
