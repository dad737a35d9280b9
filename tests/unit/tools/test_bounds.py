"""The table of bounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.memory_bounds import memory_bounds
from api.redis_memory_bounds import ClusterSize, redis_memory_bounds
from api.settings import GatewaySettings
from tools import bounds
from tools.bounds import CACHED, CONNECTIONS, FIXED_BOUNDS, HEADS, IN_FLIGHT, NONE, REDIS, SETTINGS

ROOT = Path(__file__).parents[3]
NO_BOUNDS_OF_CLIENTS = {
    "api.dialects.headers": {"MAX_DIGITS"},  # of a number
    "api.dialects.parsing": {"MAX_FIELD_CHARS", "MAX_ID"},  # what an error shows; a value
    "api.dispatch.admission": {"MAX_LIMIT_JITTER_S", "MAX_RETRY_AFTER_S"},  # advice to clients
    "api.dispatch.charges": {"MAX_CHARGES_PER_CALL"},  # the others wait, as do those of the next three
    "api.dispatch.replies": {"MAX_COLLECT_BYTES", "MAX_COLLECT_KEYS", "MAX_COLLECT_RINGS", "MAX_SMALL_BYTES"},
    "api.dispatch.submitter": {"MAX_BYTES", "MAX_REQUESTS"},
    "api.dispatch.vector_cache": {"MAX_KEYS_PER_CALL"},
    "api.http.auth": {"MAX_STALE_S"},  # of what is remembered
    "api.jobs.results": {"MAX_DIM_INPUTS"},  # read at a time
    "api.memory_bounds": {"MAX_DIM"},  # an assumption
    "api.console.history": {"MAX_SAMPLES"},  # of the time
    "api.queues": {"MAX_MISSED_POLLS"},
    "api.routes": {"MAX_HINTED_CHARS"},  # longer ones get no hint
    "api.console.tenant_rows": {"MAX_QUOTAS", "MAX_TENANT_ROWS"},  # of a report, from what is bounded
    "shared.activity": {"MAX_BUCKET"},
    "shared.codec": {
        "MAX_BODY_BYTES",
        "MAX_CUT_TOKENS",
        "MAX_DIM",
        "MAX_INPUTS",
        "MAX_INPUT_BYTES",
        "MAX_PROMPT_NAME",
        "MAX_REPLY_BYTES",
    },
    "shared.consumer": {"MAX_CLAIM_BYTES", "MAX_HEARTBEATS", "MAX_RECLAIM_DELAY_MS"},  # of workers
    "shared.lua.job_reservations": {"MAX_RELEASED"},  # at a time
    "shared.lua.reclaim": {"MAX_PAGES"},
    "shared.lua.reconcile": {"MAX_REPLIES"},
    "shared.messages": {"MAX_TOKENS"},  # the largest number
    "shared.process.log_limit": {"MAX_KINDS"},  # of log lines
    "shared.process.redis_advice": {"MAX_PAUSE_S"},  # between two lines of a log
    "shared.process.settings": {"MAX_SHOWN_CHARS"},
    "shared.process.tracebacks": {"MAX_CAUSES", "MAX_FRAMES"},
    "shared.process.tracing.traceparent": {"MAX_LENGTH"},
    "shared.producer": {"MAX_BULK_SHARE", "MAX_REPLIES"},
    "shared.tenants": {"MAX_PER_S", "MAX_WEIGHT"},  # of settings of keys
}
"""The other constants of that name: settings of how, not bounds of what a client causes. The codec's are those of what
workers and gateways read from Redis.
"""

ROWS_THAT_OTHERS_BOUND = {
    **{key: {HEADS} for key in ("max_head_bytes", "max_url_bytes", "max_unfinished_heads_bytes")},  # max_heads_bytes
    "max_address_ratio": {CONNECTIONS},  # max_connections
    **{key: {IN_FLIGHT} for key in ("max_input_chars", "max_input_bytes")},  # the bytes of a body, or those in flight
    **{key: {REDIS} for key in ("max_queue_tokens", "max_queue_bytes")},  # max_in_flight_bytes and max_queue_inputs
    **{key: {REDIS} for key in ("max_open_jobs", "max_job_inputs", "max_owed_inputs", "max_job_body_bytes")},
    **{key: {REDIS} for key in ("max_upload_bytes", "max_tenant_job_share")},  # max_owed_bytes, as those before
    "redis_memory_ratio": {REDIS},  # it bounds all rows together
    "cache_bytes": {CACHED},  # it only turns the cache on
}
"""By setting: the rows in which it counts and which another setting bounds, so that they are not larger with it."""


def constants() -> Iterator[str]:
    """Yields the full name of each constant MAX_… of gateways, and of what they share with workers."""
    for folder in ("api", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                names = [
                    each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                ]
                if isinstance(node, ast.Assign | ast.AnnAssign):
                    yield from (f"{module}.{name}" for name in names if name.startswith("MAX_"))
        for path in sorted((ROOT / folder).rglob("*.lua")):
            for line in re.findall(r"^local ([A-Z_, ]+) = ", path.read_text(encoding="utf-8"), re.MULTILINE):
                yield from (f"shared.lua.{path.stem}.{name}" for name in line.split(", ") if name.startswith("MAX_"))


def test_each_bound_is_in_the_table() -> None:
    """Who adds a constant MAX_… says what it bounds and where its memory counts, or that it bounds no client."""
    others = {f"{module}.{name}" for module, names in NO_BOUNDS_OF_CLIENTS.items() for name in names}
    documented = {each.constant for each in FIXED_BOUNDS}
    assert set(constants()) - others == {each for each in documented if each.rpartition(".")[2].startswith("MAX_")}


def test_each_bound_counts_in_a_row_of_the_memory() -> None:
    """The rows that the table names are those of the memory of a gateway."""
    rows = [each.what for each in memory_bounds(GatewaySettings.model_validate({"cache_bytes": 1}))]
    for each in (*(bound.row for bound in FIXED_BOUNDS), *sum(SETTINGS.values(), ())):
        assert each in (NONE, REDIS) or any(row.startswith(each) for row in rows), each


def test_each_setting_that_bounds_is_in_the_table() -> None:
    """A new setting of such a name needs a row, which states where its memory counts."""
    names = {each for each in GatewaySettings.model_fields if each.startswith("max_") or each.endswith("_timeout_s")}
    assert names - SETTINGS.keys() == set()


@pytest.mark.parametrize("name", GatewaySettings.model_fields)
def test_a_setting_counts_where_the_table_says(name: str) -> None:
    """A much larger value changes the memory of these rows, unless another setting bounds them, and of no others."""
    before = GatewaySettings.model_validate({"cache_bytes": 1})
    value = getattr(before, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    after = before.model_copy(update={name: 1_000 * value + 1})
    unchanged = ROWS_THAT_OTHERS_BOUND.get(name, set())
    assert _changed_rows(before, after) == set(SETTINGS.get(name, ())) - unchanged
    assert unchanged <= set(SETTINGS.get(name, ()))


def _changed_rows(before: GatewaySettings, after: GatewaySettings) -> set[str]:
    """Returns the rows of both tables whose memory two settings change, as the table of bounds names them."""
    names = {row for rows in SETTINGS.values() for row in rows}
    changed = {
        next(name for name in names if old.what.startswith(name))
        for old, new in zip(memory_bounds(before)[:-1], memory_bounds(after)[:-1], strict=True)
        if old.num_bytes != new.num_bytes
    }
    cluster = ClusterSize(1, 1, 2**30, 200)
    return changed | ({REDIS} if redis_memory_bounds(before, cluster) != redis_memory_bounds(after, cluster) else set())


def test_values_of_modules_and_scripts_are_read() -> None:
    """A row has the value of the code, with its unit."""
    table = bounds.as_markdown()
    assert "| requests that wait on a connection behind one | fixed | 8 | larger heads |" in table
    assert "| tenants with an account; further ones share one | fixed | 4,096 | Redis |" in table
    assert "| a head at the admin port | fixed | 16 KiB | the admin port |" in table
    assert "| Maximum total size of unanswered heads | `max_heads_bytes` | 16 MiB | larger heads |" in table
    assert "| Maximum fraction of maxmemory in use | `redis_memory_ratio` | 0.7 | Redis |" in table
