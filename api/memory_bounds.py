"""The memory that a gateway takes at most: what each of its bounds may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from api.console.lists import MAX_LISTED, MAX_LISTS
from api.dispatch.charges import MAX_WAITING_CHARGES
from api.dispatch.inflight import MAX_VALUES_BYTES
from api.dispatch.replies import MAX_COLLECT_BYTES, MAX_COLLECT_KEYS, MAX_SMALL_BYTES
from api.dispatch.size_limits import BYTES_PER_NUMBER
from api.dispatch.splitting import MAX_ENTRY_BYTES
from api.dispatch.vector_cache import MAX_PENDING_BYTES
from api.http.auth import MAX_ADDRESSES, MAX_CACHED_KEYS
from api.http.connection_table import MAX_SPARES, SMALL_HEAD_BYTES
from api.http.protocol import MAX_PIPELINED
from api.http.share_holder import MAX_CACHED
from api.jobs.creation import MAX_UPLOADS
from api.jobs.results import MAX_PAGE_BYTES
from api.jobs.upload import FLUSH_BYTES
from api.memory_budget import INPUT_COPIES
from api.settings import GatewaySettings
from api.usage import MAX_REPORT_ROWS
from shared.messages import MAX_OUTPUTS_BYTES
from shared.process import admin_server
from shared.usage_counts import MAX_ROWS
from shared.usage_flusher import MAX_BATCHES

MIB, KIB = 2**20, 2**10

PROGRAM_BYTES = 100 * MIB
"""The interpreter, its libraries, and what a gateway knows of queues: measured 93 MB."""

CONNECTION_BYTES, FIELD_BYTES = 12 * 2**10, 300
"""Of a connection whose request has a head of up to 4 KiB, without fields, and of each field of that: measured 38 KB
with 98 fields, and 8 KB for one that is idle."""

KEY_BYTES, ADDRESS_BYTES, CHARGE_BYTES, USAGE_BYTES = 1_024, 512, 1_280, 1_024
"""Of an API key, of an address, of a charge or refund, and of a row of usage, or of a list of the console, as the
gateway remembers them."""

LIST_BYTES = MAX_LISTED * USAGE_BYTES
"""Of a list of the console; while one is read, each shard sends as many rows."""

REMEMBERED_BYTES = (
    MAX_CACHED_KEYS * KEY_BYTES
    + (MAX_ADDRESSES + MAX_CACHED) * ADDRESS_BYTES
    + MAX_WAITING_CHARGES * CHARGE_BYTES
    + ((1 + MAX_BATCHES) * MAX_ROWS + MAX_REPORT_ROWS) * USAGE_BYTES
    + MAX_LISTS * LIST_BYTES
)

ADMIN_BYTES = MIB // 2
"""Of a connection to the admin port: its thread, its head, and the page that it is sent."""

HEAD_COPIES = 2
"""A head is in memory as it came, and as the names and values of its fields."""

PARTS_BYTES = 64 * MIB
"""Of the lists, objects and numbers in a parsed body, which has at most `parsing.MAX_PARTS` of them."""

CHAR_BYTES = 4
"""Of each character of a text that has one beyond the basic plane."""

MAX_DIM = 4_096
"""Of the vectors; larger ones take more."""

JSON_SHARE = 3.5
"""Bytes of JSON for each byte of a vector: up to 14 for a number of four."""

UPLOADS_BYTES = MAX_UPLOADS * (FLUSH_BYTES + MAX_ENTRY_BYTES)
"""Of all jobs that arrive: the entries of each that wait to be sent to Redis. Their bytes before count as bodies."""

PORTION_BYTES = 4 * MAX_PAGE_BYTES
"""Of a page: its results as they come from Redis, decoded, and as JSON."""

CALL_BYTES = max(MAX_COLLECT_KEYS * MAX_SMALL_BYTES, MAX_COLLECT_BYTES + 2 * MAX_OUTPUTS_BYTES)
"""Of the replies that one call collects: many small ones; or large ones, the last of which is being decoded."""

WAITER_BYTES = 2 * MAX_OUTPUTS_BYTES
"""Of the large reply for which a connection waits at the same time, while it is received."""

FREE_SHARE = 0.25
"""What the allocator keeps, as a share of all: memory is returned to the system in large pieces, which must be free."""


class MemoryBound(NamedTuple):
    """What a part of a gateway holds at most, in bytes, by which settings."""

    what: str
    settings: str
    num_bytes: int


def memory_bounds(settings: GatewaySettings) -> list[MemoryBound]:
    """Returns the maximum of each part, for the settings of a gateway; their sum is that of the gateway."""
    connection = CONNECTION_BYTES + FIELD_BYTES * settings.max_head_fields
    largest = largest_body(settings)
    bounds = [
        MemoryBound("the program", "", PROGRAM_BYTES),
        MemoryBound(
            "what is remembered of clients: API keys, addresses, charges, usage",
            f"fixed, see below, and {LIST_BYTES // KIB} KiB for each shard",
            REMEMBERED_BYTES + len(settings.shards) * LIST_BYTES,
        ),
        MemoryBound(
            "the admin port",
            f"fixed: {admin_server.MAX_CONNECTIONS} connections of {ADMIN_BYTES // KIB} KiB",
            admin_server.MAX_CONNECTIONS * ADMIN_BYTES,
        ),
        MemoryBound(
            f"connections, each with heads up to {SMALL_HEAD_BYTES // KIB} KiB",
            f"`max_connections` and {MAX_SPARES} × (12 KiB + `max_head_fields` × {FIELD_BYTES} bytes)",
            (settings.max_connections + MAX_SPARES) * connection,
        ),
        MemoryBound(
            f"larger heads, and up to {MAX_PIPELINED} requests on a connection behind one that is not answered",
            f"`max_heads_bytes` × {HEAD_COPIES}",
            HEAD_COPIES * settings.max_heads_bytes,
        ),
        MemoryBound(
            "bodies that arrive",
            "`max_bodies_bytes`, or the largest body (`max_body_bytes`, `max_v1_body_bytes`, `max_predict_body_bytes`)",
            max(settings.max_bodies_bytes, largest),
        ),
        MemoryBound(
            "the body that is parsed, one at a time",
            f"the largest body × {1 + CHAR_BYTES}, and {PARTS_BYTES // MIB} MiB",
            (1 + CHAR_BYTES) * largest + PARTS_BYTES,
        ),
        *_of_answers(settings),
    ]
    free = int(FREE_SHARE * sum(each.num_bytes for each in bounds))
    return [*bounds, MemoryBound("what the allocator keeps", "a quarter of all that", free)]


def largest_body(settings: GatewaySettings) -> int:
    """Returns the maximum size of a body that is not a job in lines."""
    return max(settings.max_body_bytes, settings.max_v1_body_bytes, settings.max_predict_body_bytes)


def _of_answers(settings: GatewaySettings) -> list[MemoryBound]:
    vectors = settings.max_inputs * MAX_DIM * BYTES_PER_NUMBER
    one_request = INPUT_COPIES * CHAR_BYTES * largest_body(settings) + max(MAX_VALUES_BYTES, vectors)
    bounds = [
        MemoryBound(
            "inputs and results of requests",
            f"`max_in_flight_bytes`, or one request: the largest body × {INPUT_COPIES * CHAR_BYTES}, and "
            f"{MAX_VALUES_BYTES // MIB} MiB of results or its vectors",
            max(settings.max_in_flight_bytes, one_request),
        ),
        MemoryBound(
            "results that arrive from Redis",
            f"{CALL_BYTES // MIB} MiB in a call, {WAITER_BYTES // MIB} beside it, for each shard",
            len(settings.shards) * (CALL_BYTES + WAITER_BYTES),
        ),
        MemoryBound(
            "the answer that is encoded, one at a time",
            f"{MAX_VALUES_BYTES // MIB} MiB, or `max_inputs` vectors of {MAX_DIM:,} dimensions as JSON",
            int(max(MAX_VALUES_BYTES, vectors * JSON_SHARE)),
        ),
        MemoryBound(
            "answers that clients have not read",
            "`max_unsent_bytes`, or `max_connection_unsent_bytes`",
            max(settings.max_unsent_bytes, settings.max_connection_unsent_bytes),
        ),
        MemoryBound(
            "jobs that arrive, beside their bodies",
            f"{MAX_UPLOADS} of {(FLUSH_BYTES + MAX_ENTRY_BYTES) // MIB} MiB",
            UPLOADS_BYTES,
        ),
        MemoryBound("results of jobs, one page at a time", f"{PORTION_BYTES // MIB} MiB", PORTION_BYTES),
    ]
    if settings.cache_bytes:
        cached = max(MAX_PENDING_BYTES, vectors)
        bounds.append(MemoryBound("vectors that wait to be cached", "with `cache_bytes`, those of one request", cached))
    return bounds


def max_memory_bytes(settings: GatewaySettings) -> int:
    """Returns the memory that a gateway takes at most, in bytes."""
    return sum(each.num_bytes for each in memory_bounds(settings))


def as_markdown(settings: GatewaySettings) -> str:
    """Returns the bounds as a Markdown table."""
    return table_of(memory_bounds(settings))


def table_of(bounds: Sequence[MemoryBound]) -> str:
    """Returns bounds as a Markdown table that ends with their sum."""
    rows = [f"| {each.what} | {each.settings} | {each.num_bytes / MIB:,.0f} |" for each in bounds]
    total = f"| **all** | | **{sum(each.num_bytes for each in bounds) / MIB:,.0f}** |"
    return "\n".join(["| What | At most | MiB by default |", "| --- | --- | ---: |", *rows, total])
