"""Parses the fields of a stream entry, which are untrusted, as all data from Redis."""

from __future__ import annotations

import re

from shared.codec import MAX_BODY_BYTES, MAX_INPUTS
from shared.messages import Entry, Ref
from shared.tenants import TENANT

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LATEST_MS = 2**52
_MAX_TOKENS = 2**31


def parse_entry(lane: int, raw: tuple[bytes, list[bytes]], attempts: int = 0) -> Entry | Ref:
    """Returns the entry that Redis holds, or only its Ref if its fields are not those of an entry."""
    entry_id, flat = raw
    fields = dict(zip(flat[::2], flat[1::2], strict=False))
    try:
        counted_bytes = max(0, int(fields.get(b"size", 0)))
        ref = Ref(lane, entry_id, max(1, int(fields[b"n"])), max(1, int(fields[b"cost"])), counted_bytes)
        if ref.n > MAX_INPUTS or ref.cost > _MAX_TOKENS or counted_bytes > MAX_BODY_BYTES:
            return Ref(lane, entry_id, 0, 0)  # no gateway wrote this: the counters do not include it
        request_id = fields[b"id"].decode("ascii")
        position, deadline_ms = int(fields[b"pos"]), int(fields[b"deadline_ms"])
        if not (_REQUEST_ID.fullmatch(request_id) and 0 <= position < 2**31 and 0 <= deadline_ms <= _LATEST_MS):
            return ref
        return Entry(
            ref=ref,
            version=int(fields[b"v"]),
            request_id=request_id,
            position=position,
            deadline_ms=deadline_ms,
            bell=fields.get(b"bell", b"").decode("ascii"),
            traceparent=fields.get(b"traceparent", b"").decode("ascii", "replace"),
            revision=fields.get(b"revision", b"").decode("ascii"),
            body=fields[b"body"],
            attempts=attempts,
            job=b"job" in fields,
            num_coalesced=min(ref.n, max(1, int(fields.get(b"coalesced", 1)))),
            tenant=_parse_tenant(fields.get(b"tenant")),
        )
    except (KeyError, ValueError):
        return Ref(lane, entry_id, 0, 0)


def _parse_tenant(field: bytes | None) -> str:
    """Returns the name of a tenant; "" without one, or for any other text, which anybody may have added by hand."""
    name = "" if field is None else field.decode("ascii", "replace")
    return name if TENANT.fullmatch(name) else ""
