"""The table of bounds that are no settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from api.memory_bounds import memory_bounds
from api.settings import GatewaySettings
from tools import fixed_bounds
from tools.fixed_bounds import FIXED_BOUNDS, NONE, REDIS

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
    "api.queues": {"MAX_MISSED_POLLS"},
    "api.routes": {"MAX_HINTED_CHARS"},  # longer ones get no hint
    "shared.activity": {"MAX_BUCKET"},
    "shared.codec": {
        "MAX_BODY_BYTES",
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
    "shared.process.settings": {"MAX_SHOWN_CHARS"},
    "shared.process.tracebacks": {"MAX_CAUSES", "MAX_FRAMES"},
    "shared.process.tracing.traceparent": {"MAX_LENGTH"},
    "shared.producer": {"MAX_BULK_SHARE", "MAX_REPLIES"},
    "shared.tenants": {"MAX_PER_S", "MAX_WEIGHT"},  # of settings of keys
}
"""The other constants of that name: settings of how, not bounds of what a client causes. The codec's are those of what
workers and gateways read from Redis.
"""


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
    for each in FIXED_BOUNDS:
        assert each.row in (NONE, REDIS) or any(row.startswith(each.row) for row in rows), each


def test_values_of_modules_and_scripts_are_read() -> None:
    """A row has the value of the code, with its unit."""
    table = fixed_bounds.as_markdown()
    assert "| requests that wait on a connection behind one | 8 | larger heads |" in table
    assert "| tenants with an account; further ones share one | 4,096 | Redis |" in table
    assert "| a head at the admin port | 16 KiB | the admin port |" in table
