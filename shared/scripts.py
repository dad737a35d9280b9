"""The Lua scripts, loaded from `shared/lua`. The header of each file names its KEYS and ARGV and what it returns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script by its text and the SHA-1 that Redis calls it by. One that `reads` writes nothing."""

    name: str
    text: bytes = field(repr=False)
    sha: str
    reads: bool = False

    @classmethod
    def load(cls, name: str, *before: str, reads: bool = False) -> Script:
        """Reads `shared/lua/<name>.lua`, and the files that stand before it."""
        lua = files("shared").joinpath("lua")
        text = b"".join(lua.joinpath(f"{each}.lua").read_bytes() for each in (*before, name))
        return cls(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest(), reads)


SUBMIT = Script.load("submit", "backlog", "entry_id", "tenants")
CANCEL = Script.load("cancel", "backlog")
RECONCILE = Script.load("reconcile")
QUEUE_STATS = Script.load("queue_stats", reads=True)

JOIN = Script.load("join")
CLAIM = Script.load("claim")
COMMIT = Script.load("commit", "backlog", "job_end")
BEGIN = Script.load("begin")
RENEW = Script.load("renew")
RECLAIM = Script.load("reclaim")
HAND_BACK = Script.load("hand_back")
HEARTBEAT = Script.load("heartbeat")
ANNOUNCE = Script.load("announce")
LEAVE = Script.load("leave")

CACHED = Script.load("cached", "cache")
CACHE_PUT = Script.load("cache_put", "cache")

JOB_PUT = Script.load("job_put")
JOB_CREATE = Script.load("job_create", "backlog", "entry_id", "tenants", "job_lanes", "job_end")
JOB_FORGET = Script.load("job_forget")
JOB_FEED = Script.load("job_feed", "backlog", "entry_id", "job_lanes", "job_end")
JOB_SPLIT = Script.load("job_split", "backlog", "entry_id", "job_lanes")
JOB_CANCEL = Script.load("job_cancel", "backlog", "entry_id", "job_lanes", "job_end")

LEASE_TAKE = Script.load("lease_take")
LEASE_RENEW = Script.load("lease_renew")
LEASE_RELEASE = Script.load("lease_release")

REQUEUE = Script.load("requeue", "backlog", "entry_id")
