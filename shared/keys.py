"""All keys of the cluster in Redis. Keys of a queue share the hash tag, so they share a Redis Cluster slot.

shared/key_docs.py describes each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


USAGE_HOURS = "rb:{usage:all}:hour:"
"""Prefix of the hashes of what tenants have used, one for each hour (its number since the epoch), of all queues."""

USAGE_ADDED = "rb:{usage:all}:added:"
"""Prefix of the records of what each process has added last to an hour."""


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
