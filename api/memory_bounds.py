"""The memory that a gateway takes at most: what each of its bounds may hold. Pure."""

from __future__ import annotations

from typing import NamedTuple

from api.settings import GatewaySettings

MIB = 2**20

PROGRAM_BYTES = 100 * MIB
"""The interpreter, its libraries, and what a gateway knows of queues, keys and tenants: measured 93 MB."""

CONNECTION_BYTES, FIELD_BYTES = 12 * 2**10, 300
"""Of a connection whose request has a head of up to 4 KiB, without fields, and of each field of that: measured 38 KB
with 98 fields, and 8 KB for one that is idle."""

HEAD_COPIES = 2
"""A head is in memory as it came, and as the names and values of its fields."""

PARTS_BYTES = 64 * MIB
"""Of the lists, objects and numbers in a parsed body, which has at most `parsing.MAX_PARTS` of them."""

CHAR_BYTES = 4
"""Of each character of a text that has one beyond the basic plane."""

ANSWER_BYTES = 64 * MIB
"""Maximum results of one request: `inflight.MAX_VALUES_BYTES`, or half of it for vectors."""

JSON_SHARE = 3.5
"""Bytes of JSON for each byte of a vector: up to 14 for a number of four."""

UPLOADS_BYTES = 16 * MIB
"""Of all jobs that arrive, as far as they are not in `max_bodies_bytes`: 64 KiB of each, and its entries."""

CACHED_BYTES = 64 * MIB
"""Of the vectors that wait to be cached: `vector_cache.MAX_PENDING_VECTORS` of up to 4,096 dimensions."""

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
    largest = max(settings.max_body_bytes, settings.max_v1_body_bytes, settings.max_predict_body_bytes)
    parsed = (1 + CHAR_BYTES) * largest + PARTS_BYTES
    encoded = int(max(ANSWER_BYTES, ANSWER_BYTES / 2 * JSON_SHARE))
    bounds = [
        MemoryBound("the program", "", PROGRAM_BYTES),
        MemoryBound(
            "connections, each with a head up to 4 KiB",
            "`max_connections` × (12 KiB + `max_head_fields` × 300 bytes)",
            settings.max_connections * connection,
        ),
        MemoryBound("larger heads", "`max_heads_bytes` × 2", HEAD_COPIES * settings.max_heads_bytes),
        MemoryBound("bodies that arrive", "`max_bodies_bytes` × 1.25", settings.max_bodies_bytes * 5 // 4),
        MemoryBound(
            "the body that is parsed, one at a time",
            "the largest of `max_body_bytes`, `max_v1_body_bytes` and `max_predict_body_bytes` × 5, and 64 MiB",
            parsed,
        ),
        MemoryBound("inputs and results of requests", "`max_in_flight_bytes`", settings.max_in_flight_bytes),
        MemoryBound("the answer that is encoded, one at a time", "112 MiB", encoded),
        MemoryBound("answers that clients have not read", "`max_unsent_bytes`", settings.max_unsent_bytes),
        MemoryBound("jobs that arrive, beside their bodies", "16 MiB", UPLOADS_BYTES),
        MemoryBound("results of jobs that are read from Redis, one portion at a time", "64 MiB", ANSWER_BYTES),
    ]
    if settings.cache_bytes:
        bounds.append(MemoryBound("vectors that wait to be cached", "64 MiB, with `cache_bytes`", CACHED_BYTES))
    free = int(FREE_SHARE * sum(each.num_bytes for each in bounds))
    return [*bounds, MemoryBound("what the allocator keeps", "a quarter of all that", free)]


def max_memory_bytes(settings: GatewaySettings) -> int:
    """Returns the memory that a gateway takes at most, in bytes."""
    return sum(each.num_bytes for each in memory_bounds(settings))


def as_markdown(settings: GatewaySettings) -> str:
    """Returns the bounds as a Markdown table."""
    rows = [f"| {each.what} | {each.settings} | {each.num_bytes / MIB:,.0f} |" for each in memory_bounds(settings)]
    total = f"| **all** | | **{max_memory_bytes(settings) / MIB:,.0f}** |"
    return "\n".join(["| What | At most | MiB by default |", "| --- | --- | ---: |", *rows, total])
