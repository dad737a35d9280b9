"""The bounds of what clients can cause that are no settings, for docs/settings.md, and where their memory counts."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SCRIPTS = "shared.lua"
UNITS = ((2**20, "MiB"), (2**10, "KiB"))

PROGRAM, CONNECTIONS, HEADS = "the program", "connections", "larger heads"
PARSED, IN_FLIGHT, ARRIVING = "the body that is parsed", "inputs and results of requests", "results that arrive"
UPLOADS, PAGES, REMEMBERED = "jobs that arrive", "results of jobs", "what is remembered of clients"
ADMIN, CACHED, NONE = "the admin port", "vectors that wait to be cached", ""
REDIS = "Redis"


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
    FixedBound("api.http.share_holder.MAX_CACHED", "addresses whose network it remembers", REMEMBERED),
    FixedBound("shared.lua.tenant_limits.MAX_TENANTS", "tenants with an account; further ones share one", REDIS),
    FixedBound("shared.producer.MAX_QUEUES", "queues that a gateway serves", PROGRAM),
    FixedBound("shared.process.admin_server.MAX_CONNECTIONS", "connections to the admin port", ADMIN),
    FixedBound("shared.process.admin_server.MAX_HEAD_BYTES", "a head at the admin port", ADMIN),
    FixedBound("shared.process.admin_server.TIMEOUT_S", "seconds for a head or an answer at the admin port", ADMIN),
    FixedBound("api.dialects.parsing.MAX_PARTS", "lists, objects, fields, texts and numbers in a body", PARSED),
    FixedBound("api.dialects.predict.MAX_NESTING", "levels to which an input of a function is nested", PARSED),
    FixedBound("api.dialects.request.MAX_MODEL", "characters of a model's name", NONE),
    FixedBound("api.dialects.request.MAX_TIMEOUT_MS", "milliseconds of a request's timeout", NONE),
    FixedBound("api.jobs.routes.MAX_WAIT_S", "seconds for which a request waits for a job", NONE),
    FixedBound(
        "api.dispatch.inflight.MAX_VALUES_BYTES", "the results of a request, unless they are vectors", IN_FLIGHT
    ),
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
    rows = [f"| {each.what} | {_with_unit(each)} | {each.row or '–'} |" for each in FIXED_BOUNDS]
    return "\n".join(["| Bound of | fixed at | counts in |", "| --- | ---: | --- |", *rows])


def _with_unit(bound: FixedBound) -> str:
    number = value_of(bound.constant)
    if bound.constant.endswith("_BYTES"):
        size, unit = next((each for each in UNITS if number % each[0] == 0), (1, "bytes"))
        return f"{number / size:,.0f} {unit}"
    return f"{number:,.0f}"
