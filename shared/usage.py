"""Adds what a process has counted to Redis, and reads it: a hash for each hour, of all queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.keys import USAGE_ADDED, USAGE_HOURS
from shared.script_arguments import UsageAddArguments, UsageRow
from shared.usage_counts import COUNTS, MAX_ROWS, OTHER, Usage, UsageKey

KEPT_HOURS = 960
"""For how long rows are kept: 40 days."""

HOUR_MS = 3_600_000
RECORD_TTL_MS = 24 * HOUR_MS
"""Longer than an outage after which a process repeats a call."""

HOURS_PER_CALL = 24


class UsageBatch(NamedTuple):
    """What a process adds in one call: the number of the call, how long ago it was counted, and the rows."""

    number: int
    age_ms: int
    rows: Mapping[UsageKey, Usage]


async def add(connection: RedisConnection, process: str, batch: UsageBatch) -> bool:
    """Adds rows to their hour; returns whether they were not there yet.

    Raises:
        RedisUnreachableError: whether they were added is unknown; repeating the call with this number adds them once.
    """
    args: list[Argument] = [
        *UsageAddArguments(
            sequence_number=batch.number,
            age_ms=batch.age_ms,
            hour_prefix=USAGE_HOURS,
            max_rows=MAX_ROWS,
            other=OTHER,
            record_ttl_ms=RECORD_TTL_MS,
            hour_ttl_ms=KEPT_HOURS * HOUR_MS,
            num_rows=len(batch.rows),
        )
    ]
    for key, usage in batch.rows.items():
        args += UsageRow(
            *key,
            requests=usage.requests,
            refusals=usage.refusals,
            failures=usage.failures,
            inputs=usage.inputs,
            tokens=usage.tokens,
            cached_tokens=usage.cached_tokens,
            device_us=round(usage.device_ms * 1000),
        )
    return bool(await connection.run(scripts.USAGE_ADD, [f"{USAGE_ADDED}{process}"], args))


async def read_hours(
    connections: Sequence[RedisConnection], hours: range
) -> AsyncIterator[tuple[int, dict[UsageKey, Usage]]]:
    """Yields the hours that have rows, by their number since the epoch, with these.

    Each of several Redis has rows: those of the processes whose first, or only one, it is. An hour comes once of each.

    Raises:
        RedisUnreachableError: one of them did not answer.
    """
    for connection in connections:
        for start in range(0, len(hours), HOURS_PER_CALL):
            part = hours[start : start + HOURS_PER_CALL]
            found = await connection.call_all([("HGETALL", f"{USAGE_HOURS}{hour}") for hour in part])
            for hour, flat in zip(part, found, strict=True):
                rows = _parse_rows(flat)
                if rows:
                    yield hour, rows


def _parse_rows(flat: Sequence[bytes]) -> dict[UsageKey, Usage]:
    """Parses rows from Redis, which is untrusted: one that is none is left out."""
    rows: dict[UsageKey, Usage] = {}
    for names, counts in zip(flat[::2], flat[1::2], strict=True):
        parts, numbers = names.decode("utf-8", "replace").split(" "), counts.split(b" ")
        if len(parts) == len(UsageKey._fields) and len(numbers) == len(COUNTS) and all(map(bytes.isdigit, numbers)):
            row = rows[UsageKey(*parts)] = Usage(*map(int, numbers))
            row.device_ms /= 1000
    return rows
