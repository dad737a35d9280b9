"""The Lua scripts, loaded from `shared/lua`. The header of each file documents KEYS, ARGV and the return value."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script: its text, and the SHA-1 by which Redis calls it. A script with `reads` writes nothing."""

    name: str
    text: bytes = field(repr=False)
    sha: str
    reads: bool = False

    @classmethod
    def load(cls, name: str, *preludes: str, reads: bool = False) -> Script:
        """Reads `shared/lua/<name>.lua`, and the files that are prepended to it."""
        lua = files("shared").joinpath("lua")
        text = b"".join(lua.joinpath(f"{each}.lua").read_bytes() for each in (*preludes, name))
        return cls(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest(), reads)


SUBMIT = Script.load("submit", "backlog", "add_entry", "tenant_limits")
CANCEL = Script.load("cancel", "backlog")
CHARGE = Script.load("charge", "tenant_limits")
COLLECT = Script.load("collect")
RECONCILE = Script.load("reconcile")
QUEUE_STATS = Script.load("queue_stats", reads=True)

JOIN = Script.load("join")
CLAIM = Script.load("claim", "entry_fields")
COMMIT = Script.load("commit", "backlog", "job_results", "job_reservations", "job_end")
MARK_BEGUN = Script.load("mark_begun")
RENEW = Script.load("renew")
RECLAIM = Script.load("reclaim", "entry_fields")
HAND_BACK = Script.load("hand_back")
HEARTBEAT = Script.load("heartbeat")
ANNOUNCE = Script.load("announce")
LEAVE = Script.load("leave")

CACHE_LOOKUP = Script.load("cache_lookup", "cache_generations")
CACHE_STORE = Script.load("cache_store", "cache_generations")

JOB_UPLOAD = Script.load("job_upload", "tenant_limits", "job_reservations")
JOB_CREATE = Script.load("job_create", "backlog", "add_entry", "job_lanes", "job_reservations")
JOB_DISCARD = Script.load("job_discard", "tenant_limits", "job_reservations")
JOB_FEED = Script.load("job_feed", "backlog", "add_entry", "job_lanes", "job_results", "job_reservations", "job_end")
JOB_SPLIT = Script.load("job_split", "backlog", "add_entry", "job_lanes")
JOB_CANCEL = Script.load(
    "job_cancel", "backlog", "add_entry", "job_lanes", "job_results", "job_reservations", "job_end"
)

USAGE_ADD = Script.load("usage_add")

LEASE_ACQUIRE = Script.load("lease_acquire")
LEASE_RENEW = Script.load("lease_renew")
LEASE_RELEASE = Script.load("lease_release")
LEASE_STATUS = Script.load("lease_status", reads=True)

REQUEUE = Script.load("requeue", "backlog", "add_entry")
DEAD_LIST = Script.load("dead_list", reads=True)
