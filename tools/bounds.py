"""The bounds of what clients can cause, for docs/settings.md: settings and fixed ones, and where each counts."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from api.settings import GatewaySettings

ROOT = Path(__file__).parents[1]
SCRIPTS = "shared.lua"
UNITS = ((2**20, "MiB"), (2**10, "KiB"))

PROGRAM, CONNECTIONS, HEADS = "the program", "connections", "larger heads"
PARSED, IN_FLIGHT, ARRIVING = "the body that is parsed", "inputs and results of requests", "results that arrive"
UPLOADS, PAGES, REMEMBERED = "jobs that arrive", "results of jobs", "what is remembered of clients"
ADMIN, CACHED, NONE = "the admin port", "vectors that wait to be cached", ""
BODIES, ENCODED, UNSENT = "bodies that arrive", "the answer that is encoded", "answers that clients have not read"
REDIS = "Redis"

SETTINGS: dict[str, tuple[str, ...]] = {
    "max_connections": (CONNECTIONS,),
    "max_address_ratio": (CONNECTIONS,),
    "keep_alive_s": (),
    "head_timeout_s": (),
    "max_head_bytes": (HEADS,),
    "max_head_fields": (CONNECTIONS,),
    "max_url_bytes": (HEADS,),
    "max_heads_bytes": (HEADS,),
    "max_unfinished_heads_bytes": (HEADS,),
    "max_body_bytes": (BODIES, PARSED, IN_FLIGHT, REDIS),
    "max_v1_body_bytes": (BODIES, PARSED, IN_FLIGHT, REDIS),
    "max_predict_body_bytes": (BODIES, PARSED, IN_FLIGHT, REDIS),
    "max_bodies_bytes": (BODIES,),
    "body_timeout_s": (),
    "max_inputs": (IN_FLIGHT, ENCODED, CACHED),
    "max_input_chars": (IN_FLIGHT,),
    "max_input_bytes": (IN_FLIGHT,),
    "max_in_flight_bytes": (IN_FLIGHT, REDIS),
    "max_connection_unsent_bytes": (UNSENT,),
    "max_unsent_bytes": (UNSENT,),
    "send_timeout_s": (),
    "max_queue_inputs": (REDIS,),
    "max_queue_tokens": (REDIS,),
    "max_queue_bytes": (REDIS,),
    "reply_connections": (REDIS,),
    "redis_timeout_s": (),
    "queue_shards": (REMEMBERED, ARRIVING),
    "redis_memory_ratio": (REDIS,),
    "cache_bytes": (CACHED, REDIS),
    "max_open_jobs": (REDIS,),
    "max_job_inputs": (REDIS,),
    "max_job_body_bytes": (REDIS,),
    "max_owed_inputs": (REDIS,),
    "max_owed_bytes": (REDIS,),
    "max_upload_bytes": (REDIS,),
    "max_result_ratio": (REDIS,),
    "max_tenant_job_share": (REDIS,),
    "max_inline_bytes": (REDIS,),
    "max_upload_s": (),
    "min_upload_bytes_per_s": (),
    "job_timeout_s": (),
    "job_ttl_s": (),
}
"""By name of a setting that bounds: the rows of the tables of memory in which it counts."""


class FixedBound(NamedTuple):
    """A bound: its constant, what it bounds, and the row of the table of memory in which it counts, if in any."""

    constant: str
    what: str
    row: str


FIXED_BOUNDS = (
    FixedBound("api.http.protocol.MAX_PIPELINED", "requests that wait on a connection behind one", HEADS),
    FixedBound("api.http.connection_table.MAX_SPARES", "connections beyond `max_connections`, for probes", CONNECTIONS),
    FixedBound("api.http.connection_table.SMALL_HEAD_BYTES", "a head that does not count as a larger one", CONNECTIONS),
    FixedBound("api.http.head_refusal.MAX_LINGER_BYTES", "what is read, and dropped, after a head is refused", NONE),
    FixedBound("api.http.lingering_close.MAX_LINGER_BYTES", "what is read, and dropped, of a refused body", NONE),
    FixedBound("api.http.lingering_close.MAX_LINGER_S", "seconds in which it is read", NONE),
    FixedBound("api.http.lingering_close.MAX_SILENCE_S", "seconds without any of it", NONE),
    FixedBound("api.http.auth.MAX_KEY_CHARS", "characters of an API key", NONE),
    FixedBound("api.http.auth.MAX_FAILURES", "wrong keys of an address in a row, then two in a second", NONE),
    FixedBound("api.http.auth.MAX_CACHED_KEYS", "API keys that a gateway remembers", REMEMBERED),
    FixedBound("api.http.auth.MAX_ADDRESSES", "addresses with wrong keys that it remembers", REMEMBERED),
    FixedBound(
        "api.dialects.revisions.MAX_CACHED",
        "short texts of workers that it remembers as revisions, or as none",
        REMEMBERED,
    ),
    FixedBound("api.http.share_holder.MAX_CACHED", "addresses whose network it remembers", REMEMBERED),
    FixedBound("shared.lua.tenant_limits.MAX_TENANTS", "tenants with an account; further ones share one", REDIS),
    FixedBound("shared.usage_counts.MAX_ROWS", "tenants, queues and operations whose use is counted apart", REDIS),
    FixedBound("shared.usage_flusher.MAX_BATCHES", "times that many, while Redis is away", REMEMBERED),
    FixedBound("shared.usage_counts.MAX_LABELS", "tenants in metrics; further ones are one", NONE),
    FixedBound("api.usage.MAX_REPORT_ROWS", "rows of a report of usage", REMEMBERED),
    FixedBound("api.console.lists.MAX_LISTED", "dead letters, or jobs, in a list of the console", REMEMBERED),
    FixedBound("api.console.lists.MAX_LISTS", "such lists that are kept for further viewers", REMEMBERED),
    FixedBound("api.console.actions.MAX_REQUEUES", "dead letters of a shard that are requeued at a time", NONE),
    FixedBound("shared.producer.MAX_QUEUES", "queues that a gateway serves", PROGRAM),
    FixedBound(
        "api.dispatch.shard_choice.MAX_REMEMBERED_KEYS", "tenants and vectors whose shards are remembered", PROGRAM
    ),
    FixedBound("shared.connection.MAX_REDIRECTIONS", "servers of a Redis Cluster that one call may be sent to", NONE),
    FixedBound("shared.redis_locator.MAX_QUERIED", "servers of a Redis Cluster queried at once for a slot", NONE),
    FixedBound("shared.redis_opener.MAX_CHECK_S", "seconds for which a poll waits for sentinels", NONE),
    FixedBound("shared.redis_errors.MAX_REPLY_CHARS", "characters of an error reply of Redis in logs", NONE),
    FixedBound("shared.process.admin_server.MAX_CONNECTIONS", "connections to the admin port", ADMIN),
    FixedBound("shared.process.admin_server.MAX_HEAD_BYTES", "a head at the admin port", ADMIN),
    FixedBound("shared.process.admin_server.TIMEOUT_S", "seconds for a head or an answer at the admin port", ADMIN),
    FixedBound("api.dialects.parsing.MAX_PARTS", "lists, objects, fields, texts and numbers in a body", PARSED),
    FixedBound("api.dialects.predict.MAX_NESTING", "levels to which an input of a function is nested", PARSED),
    FixedBound("api.dialects.input_types.MAX_INPUT_TYPE", "characters of an input type", NONE),
    FixedBound("shared.codec.MAX_INSTRUCTION", "characters of an instruction", NONE),
    FixedBound("api.dialects.request.MAX_MODEL", "characters of a model's name", NONE),
    FixedBound("api.dialects.revisions.MAX_REVISION", "characters of a model's revision", NONE),
    FixedBound("api.dialects.request.MAX_TIMEOUT_MS", "milliseconds of a request's timeout", NONE),
    FixedBound("api.jobs.routes.MAX_WAIT_S", "seconds for which a request waits for a job", NONE),
    FixedBound(
        "api.dispatch.inflight.MAX_VALUES_BYTES", "the results of a request, unless they are vectors", IN_FLIGHT
    ),
    FixedBound("api.dispatch.inflight.MAX_LOGGED_CHARS", "characters of a worker's message in a log line", NONE),
    FixedBound("shared.messages.MAX_OUTPUTS_BYTES", "a reply of a worker", ARRIVING),
    FixedBound("api.dispatch.size_limits.MAX_OUTPUT_BYTES", "token vectors in an answer", IN_FLIGHT),
    FixedBound("api.dispatch.size_limits.MAX_OUTPUT_TOKENS", "tokens in an answer", IN_FLIGHT),
    FixedBound("api.dispatch.charges.MAX_WAITING_CHARGES", "charges of tenants, and refunds, that wait", REMEMBERED),
    FixedBound("api.dispatch.vector_cache.MAX_PENDING_BYTES", "vectors that wait to be cached", CACHED),
    FixedBound("api.dispatch.coalescing.MAX_REQUEST_INPUTS", "inputs of a request that may share an entry", IN_FLIGHT),
    FixedBound("api.dispatch.coalescing.MAX_CHARS", "characters of each", IN_FLIGHT),
    FixedBound("api.dispatch.coalescing.MAX_VECTORS_BYTES", "vectors of an entry that requests share", IN_FLIGHT),
    FixedBound("api.dispatch.coalescer.MAX_OPEN", "entries to which requests are being added", IN_FLIGHT),
    FixedBound("api.dispatch.splitting.MAX_ENTRY_BYTES", "an entry, unless one input is larger", UPLOADS),
    FixedBound("api.jobs.creation.MAX_UPLOADS", "bodies of jobs that a gateway receives at a time", UPLOADS),
    FixedBound("api.jobs.upload.FLUSH_BYTES", "inputs of such a body that wait for Redis", UPLOADS),
    FixedBound("api.jobs.ndjson.MAX_FRAMING_BYTES", "a line of a job beside its input", NONE),
    FixedBound("api.jobs.results.MAX_PAGE_INPUTS", "inputs in a page of results", PAGES),
    FixedBound("api.jobs.results.MAX_PAGE_BYTES", "a page of results", PAGES),
    FixedBound("api.jobs.representation.MAX_ERRORS", "errors in the status of a job", NONE),
    FixedBound("shared.jobs.MAX_RESULTS", "entries of the results stream", REDIS),
    FixedBound("shared.lua.job_create.MAX_LISTED_JOBS", "jobs that can be listed", REDIS),
    FixedBound("shared.feed_window.MAX_ENTRIES", "entries of jobs in the lanes", REDIS),
    FixedBound("shared.feed_window.MAX_BYTES", "bytes of the entries of jobs in the lanes", REDIS),
    FixedBound("shared.consumer.MAX_DEAD_BODY_BYTES", "the body of a dead letter", REDIS),
)


def value_of(constant: str) -> float:
    """Returns the value of a constant: of a module, or of a script."""
    module, _, name = constant.rpartition(".")
    if not module.startswith(SCRIPTS):
        return float(getattr(importlib.import_module(module), name))
    text = (ROOT / f"{module.replace('.', '/')}.lua").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^local (.*\b{name}\b.*)$", text, re.MULTILINE)
    names, _, values = line.partition(" = ")
    return float(dict(zip(names.split(", "), values.split(", "), strict=True))[name])


def as_markdown() -> str:
    """Returns the bounds as a Markdown table."""
    return "\n".join(["| Bound | by | at | counts in |", "| --- | --- | ---: | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for name, rows in SETTINGS.items():
        field = GatewaySettings.model_fields[name]
        what = field.title or re.split(r"[.:;]", str(field.description))[0]
        yield f"| {what} | `{name}` | {_with_unit(name, field.default)} | {', '.join(rows) or '–'} |"
    for each in FIXED_BOUNDS:
        yield f"| {each.what} | fixed | {_with_unit(each.constant, value_of(each.constant))} | {each.row or '–'} |"


def _with_unit(name: str, number: float) -> str:
    if not name.lower().endswith("_bytes"):
        return f"{number:,.0f}" if number == int(number) else f"{number:g}"
    size, unit = next((each for each in UNITS if number % each[0] == 0), (1, "bytes"))
    return f"{number / size:,.0f} {unit}"
