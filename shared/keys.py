"""All keys of the cluster in Redis. Keys of a queue share the hash tag, so they share a Redis Cluster slot.

KEY_DOCS describes each key; shared/key_table.py renders it for the documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LANES = ("interactive", "bulk")
"""The lanes, in the order in which workers read them."""

INTERACTIVE, BULK = range(len(LANES))

GROUP = "workers"
"""The consumer group of every lane."""

RELEASED = "released"
"""The consumer that holds entries that were handed back, until another worker takes them."""


API_KEYS = "rb:keys"
"""Hash of the API keys of clients, by id, as JSON: the same for all queues."""

QUEUES = "rb:queues"
"""Zset of queues by the time (Redis' clock, ms) at which one of their workers last announced them."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue."""

    queue: str
    tag: str = ""
    """What is hashed for the slot in a Redis Cluster, if the queue has several shards there; else it is the queue."""

    prefix: str = field(init=False, compare=False, repr=False)
    """The prefix of all keys of the queue."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"rb:{{{self.tag or self.queue}}}:")

    @property
    def lanes(self) -> list[str]:
        """The streams, in the order of LANES."""
        return [f"{self.prefix}q:{lane}" for lane in LANES]

    @property
    def backlog(self) -> str:
        """Hash of the inputs and estimated tokens of all entries in the lanes, and the tokens of those in bulk."""
        return f"{self.prefix}backlog"

    @property
    def epoch(self) -> str:
        """String that changes when the queue's data was lost."""
        return f"{self.prefix}epoch"

    @property
    def cache(self) -> list[str]:
        """The metadata of the cache, and its two generations: hashes of vectors by their key (see shared/cache.py)."""
        return [f"{self.prefix}cache{part}" for part in ("", ":0", ":1")]

    @property
    def workers(self) -> str:
        """Zset of workers by the time (Redis' clock, ms) of their last heartbeat."""
        return f"{self.prefix}workers"

    @property
    def standby(self) -> str:
        """Zset of the workers that take no work, by the time of their last heartbeat."""
        return f"{self.prefix}standby"

    @property
    def tenants(self) -> str:
        """Hash of the balance of each tenant, by its name."""
        return f"{self.prefix}tenants"

    @property
    def dead(self) -> str:
        """Stream of dead letters: entries that were given up."""
        return f"{self.prefix}dead"

    @property
    def jobs(self) -> str:
        """Zset of jobs that have not ended, by the tokens fed into the lanes."""
        return f"{self.prefix}jobs"

    @property
    def all_jobs(self) -> str:
        """Zset of jobs by the time (Redis' clock, ms) of their creation."""
        return f"{self.prefix}jobs:all"

    @property
    def owed(self) -> str:
        """Hash of the number of inputs of jobs without a result, and the entries and tokens of jobs in the lanes."""
        return f"{self.prefix}jobs:owed"

    @property
    def uploads(self) -> str:
        """Hash of what each upload of a job reserves, by job id."""
        return f"{self.prefix}jobs:uploads"

    @property
    def kept(self) -> str:
        """Zset of jobs that have ended and have results, by the time (Redis' clock, ms) at which these expire."""
        return f"{self.prefix}jobs:kept"

    @property
    def results(self) -> str:
        """Stream of the jobs that have ended, for the clients that process their results."""
        return f"{self.prefix}results"

    def job(self, job_id: str) -> str:
        """Hash of a job; the keys of its inputs and results are this key and a suffix."""
        return f"{self.prefix}job:{job_id}"

    def idempotency(self, digest: str) -> str:
        """Hash of the job that a client created with an idempotency key."""
        return f"{self.prefix}idempotency:{digest}"

    def reply(self, request_id: str) -> str:
        """List of the replies to one request."""
        return f"{self.prefix}reply:{request_id}"

    def bell(self, gateway: str) -> str:
        """List of the ids of requests whose replies are ready for this gateway."""
        return f"{self.prefix}bell:{gateway}"

    def submitted(self, gateway: str) -> str:
        """The result of this gateway's last submit, so that repeating the submit adds nothing."""
        return f"{self.prefix}submitted:{gateway}"

    def worker(self, worker: str) -> str:
        """Heartbeat of a worker, as JSON."""
        return f"{self.prefix}worker:{worker}"

    def begun(self, worker: str) -> str:
        """The entries that this worker last began to run, so that a reclaim can count the attempt."""
        return f"{self.prefix}begun:{worker}"


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """The keys of a pool of GPUs, which workers of all queues share."""

    name: str

    @property
    def prefix(self) -> str:
        """The prefix of all keys of the pool."""
        return f"rb:{{gpu:{self.name}}}:"

    @property
    def fence(self) -> str:
        """The last fence that was issued."""
        return f"{self.prefix}fence"

    def slot(self, slot: str) -> str:
        """The holder of a slot, and its fence."""
        return f"{self.prefix}slot:{slot}"

    def waiting(self, slots: Sequence[str]) -> list[str]:
        """Waiters for one of these slots: a zset by their first request, and a hash of the time of their last one."""
        joined = ",".join(sorted(slots))
        return [f"{self.prefix}{name}:{joined}" for name in ("waiting", "asked")]

    def wake(self, owner: str) -> str:
        """List on which a waiter blocks until a slot is given back."""
        return f"{self.prefix}wake:{owner}"


class KeyDoc(NamedTuple):
    """What the documents say of a key, or of keys that belong together. Texts are Markdown.

    `page` is the document that explains it: architecture, jobs or leases.
    """

    keys: tuple[str, ...]
    type: str
    written_by: str
    lifetime: str
    holds: str = ""
    page: str = "architecture"


_Q, _G = "rb:{<queue>}", "rb:{gpu:<pool>}"
_UNTIL_END = "until the job has ended"
_AFTER_END = "`job_ttl_s` after the job has ended"

KEY_DOCS = (
    KeyDoc((f"{_Q}:q:<lane>",), "stream", "gateways", "permanent; finished entries are deleted"),
    KeyDoc(
        (f"{_Q}:reply:<request id>",), "list", "workers", "remaining deadline + `reply_ttl_s` (10 s); popped at once"
    ),
    KeyDoc((f"{_Q}:bell:<gateway>",), "list", "workers", "60 s after the last ring; popped at once"),
    KeyDoc(
        (f"{_Q}:backlog",),
        "hash",
        "both",
        "reset when the lanes are empty",
        "`inputs`, `tokens` and `bytes` in the lanes, `bulk_tokens` in bulk",
    ),
    KeyDoc((f"{_Q}:epoch",), "string", "both", "permanent; a new value means that data was lost"),
    KeyDoc((f"{_Q}:submitted:<gateway>",), "string", "gateways", "6 min after the gateway's last submit"),
    KeyDoc((f"{_Q}:workers",), "zset", "workers", "an hour after the last heartbeat of any worker", "scores are ms"),
    KeyDoc(
        (f"{_Q}:standby",),
        "zset",
        "workers",
        "an hour after the last heartbeat of any of them",
        "the members of `workers` that take no work: they wait for a GPU, or their model fails",
    ),
    KeyDoc(
        (f"{_Q}:worker:<worker>",),
        "string, JSON",
        "workers",
        "`heartbeat_ttl_s` (5 s) after the last heartbeat; `<host>-failed`: a minute after a model did not load there",
    ),
    KeyDoc((f"{_Q}:begun:<worker>",), "string", "workers", "an hour after its last batch, or until it leaves"),
    KeyDoc((f"{_Q}:dead",), "stream", "workers", "permanent; the last `max_dead_letters` (200)"),
    KeyDoc(
        (f"{_Q}:cache", f"{_Q}:cache:0", f"{_Q}:cache:1"),
        "hash",
        "gateways",
        "four times `cache_ttl_s`",
        "at most `cache_bytes`",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>",),
        "hash",
        "both",
        _AFTER_END,
        "the job: status, `op`, `n`, `done`, `failed`, `truncated`, owner, times",
        "jobs",
    ),
    KeyDoc((f"{_Q}:job:<id>:in",), "hash", "gateways", _UNTIL_END, "its inputs without a result, by position", "jobs"),
    KeyDoc(
        (f"{_Q}:job:<id>:todo",),
        "list",
        "gateways",
        _UNTIL_END,
        "the positions of inputs that have not been in a lane yet",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:fed",), "hash", "both", _UNTIL_END, "the ids of its entries in the lane, by position", "jobs"
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:out",),
        "hash",
        "workers",
        _AFTER_END,
        "replies, by position, as [a client would get them](architecture.md#a-reply)",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:failed",), "list", "workers", _AFTER_END, "the positions of replies that are errors", "jobs"
    ),
    KeyDoc(
        (f"{_Q}:jobs",),
        "zset",
        "both",
        "permanent",
        "jobs that have not ended, by the number of tokens fed into the lanes",
        "jobs",
    ),
    KeyDoc((f"{_Q}:jobs:all",), "zset", "gateways", "permanent", "jobs by creation time", "jobs"),
    KeyDoc(
        (f"{_Q}:jobs:owed",),
        "hash",
        "both",
        "permanent",
        "inputs without a result; entries of jobs in the lanes, with their inputs, tokens and bytes; what open jobs "
        "and uploads hold, in all and by tenant: `jobs`, `job_inputs`, `job_bytes`, `upload_bytes`, `result_bytes`; "
        "`kept_bytes` of ended jobs; `asked`, written before a query to Redis whether all earlier writes are durable",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:jobs:uploads",),
        "hash",
        "gateways",
        "permanent; an upload is removed with its end, or two minutes after its last inputs",
        "what each upload of a job reserves",
        "jobs",
    ),
    KeyDoc((f"{_Q}:jobs:kept",), "zset", "both", "permanent", "ended jobs by the expiry of their results", "jobs"),
    KeyDoc(
        (f"{_Q}:results",),
        "stream",
        "both",
        "permanent",
        "the last 10,000 jobs that ended, for an hour: `id`, `status`, `n`, `done`, `failed`, `op`, `owner`, and "
        "[their results](jobs.md#the-results-stream)",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:idempotency:<digest>",),
        "hash",
        "gateways",
        "as long as its job may exist",
        "the job that belongs to an idempotency key",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:tenants",),
        "hash",
        "gateways",
        "a day after the last request of any tenant",
        "the balance of each tenant",
    ),
    KeyDoc(
        (f"{_G}:slot:<slot>",),
        "string",
        "workers",
        "`gpu_lease_ttl_s` after its holder's last renewal",
        "the holder of a slot, and its fence",
        "leases",
    ),
    KeyDoc((f"{_G}:fence",), "string", "workers", "permanent; only grows", "the last fence", "leases"),
    KeyDoc(
        (f"{_G}:waiting:<slots>", f"{_G}:asked:<slots>"),
        "zset, hash",
        "workers",
        "while any worker waits for a turn",
        "waiting workers by their first request, and the time of their last one",
        "leases",
    ),
    KeyDoc(
        (f"{_G}:wake:<worker>",),
        "list",
        "workers",
        "10 s; popped at once",
        "wakes the worker whose turn it is",
        "leases",
    ),
    KeyDoc(
        ("rb:queues",),
        "zset",
        "workers",
        "ten minutes after the last heartbeat of any worker",
        "queues, scores are ms",
    ),
    KeyDoc(
        ("rb:keys",),
        "hash, JSON",
        "`redbatch keys`",
        "permanent",
        "the API keys of clients by id, the same for all queues",
    ),
)
"""Every key, in the order of the table in docs/architecture.md."""
