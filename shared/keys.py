"""Every key of the cluster in Redis. All keys of a queue share the hash tag, so they share a Redis Cluster slot.

| key                               | type   | written by       | lifetime                                             |
|-----------------------------------|--------|------------------|------------------------------------------------------|
| rb:{<queue>}:q:<lane>             | stream | gateways         | permanent; finished entries are deleted              |
| rb:{<queue>}:backlog              | hash   | both             | inputs, tokens, those of bulk; reset when empty      |
| rb:{<queue>}:epoch                | string | both             | permanent; a new value means that data was lost      |
| rb:{<queue>}:reply:<request id>   | list   | workers          | remaining deadline + reply_ttl_s; popped at once     |
| rb:{<queue>}:bell:<gateway>       | list   | workers          | 60 s after the last ring; popped at once             |
| rb:{<queue>}:tenants              | hash   | gateways         | a day after the last request of a tenant's           |
| rb:{<queue>}:submitted:<gateway>  | string | gateways         | 6 min after the gateway's last submit                |
| rb:{<queue>}:workers              | zset   | workers          | an hour after the last heartbeat of any              |
| rb:{<queue>}:standby              | zset   | workers          | an hour after the last heartbeat on standby          |
| rb:{<queue>}:worker:<worker>      | string | workers          | heartbeat_ttl_s after the last heartbeat             |
| rb:{<queue>}:begun:<worker>       | string | workers          | an hour after the last batch, or until it leaves     |
| rb:{<queue>}:dead                 | stream | workers          | permanent; the last max_dead_letters ones            |
| rb:{<queue>}:job:<job>            | hash   | both             | job_ttl_s after the job has ended; what it is        |
| rb:{<queue>}:job:<job>:in         | hash   | gateways         | until the job has ended; inputs without a result     |
| rb:{<queue>}:job:<job>:todo       | list   | gateways         | until the job has ended; what was in no lane yet     |
| rb:{<queue>}:job:<job>:fed        | hash   | both             | until the job has ended; its entries in the lanes    |
| rb:{<queue>}:job:<job>:out        | hash   | workers          | job_ttl_s after the job has ended; replies           |
| rb:{<queue>}:job:<job>:failed     | list   | workers          | job_ttl_s after the job has ended; where errors are  |
| rb:{<queue>}:jobs                 | zset   | both             | permanent; jobs that have not ended                  |
| rb:{<queue>}:jobs:all             | zset   | gateways         | permanent; jobs that are there, by their time        |
| rb:{<queue>}:jobs:owed            | hash   | both             | permanent; what jobs have not got yet                |
| rb:{<queue>}:results              | stream | both             | permanent; the last jobs that have ended             |
| rb:{<queue>}:idempotency:<digest> | hash   | gateways         | as long as its job may be there                      |
| rb:{<queue>}:cache, :cache:0, :1  | hash   | gateways         | four times cache_ttl_s; cache_bytes at most          |
| rb:{gpu:<pool>}:slot:<slot>       | string | workers          | gpu_lease_ttl_s after its holder's last renewal      |
| rb:{gpu:<pool>}:fence             | string | workers          | permanent; only grows                                |
| rb:{gpu:<pool>}:waiting:<slots>, :asked:<slots> | zset, hash | workers | while somebody waits for a turn        |
| rb:{gpu:<pool>}:wake:<worker>     | list   | workers          | 10 s; popped at once                                 |
| rb:keys                           | hash   | `redbatch keys`  | permanent; clients' keys by id, for all queues       |
| rb:queues                         | zset   | workers          | ten minutes after the last heartbeat of any worker   |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LANES = ("interactive", "bulk")
"""The lanes in the order in which workers read them."""

INTERACTIVE, BULK = range(len(LANES))

GROUP = "workers"
"""The consumer group of every lane."""

RELEASED = "released"
"""The consumer that holds what was handed back, until another worker takes it."""


API_KEYS = "rb:keys"
"""Hash of the keys of clients, by id, as JSON: the same for all queues."""

QUEUES = "rb:queues"
"""Queues by the time (Redis' clock, ms) at which one of their workers announced them last."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue."""

    queue: str

    @property
    def prefix(self) -> str:
        """What all keys of the queue begin with."""
        return f"rb:{{{self.queue}}}:"

    @property
    def lanes(self) -> list[str]:
        """The streams, in the order of LANES."""
        return [f"{self.prefix}q:{lane}" for lane in LANES]

    @property
    def backlog(self) -> str:
        """Hash with the inputs and estimated tokens of all entries in the lanes, and the tokens of those in bulk."""
        return f"{self.prefix}backlog"

    @property
    def epoch(self) -> str:
        """Names one life of the queue's data."""
        return f"{self.prefix}epoch"

    @property
    def cache(self) -> list[str]:
        """What is known of the cache, and its two generations: vectors by a digest of what they are of."""
        return [f"{self.prefix}cache{part}" for part in ("", ":0", ":1")]

    @property
    def workers(self) -> str:
        """Workers by the time (Redis' clock, ms) of their last heartbeat."""
        return f"{self.prefix}workers"

    @property
    def standby(self) -> str:
        """Those of the workers that wait for a GPU, by the time of their last heartbeat."""
        return f"{self.prefix}standby"

    @property
    def tenants(self) -> str:
        """Hash of what each tenant has left, by its name."""
        return f"{self.prefix}tenants"

    @property
    def dead(self) -> str:
        """Stream of the dead letters: entries that were given up."""
        return f"{self.prefix}dead"

    @property
    def jobs(self) -> str:
        """Jobs that have not ended, by the tokens that they have had."""
        return f"{self.prefix}jobs"

    @property
    def all_jobs(self) -> str:
        """Jobs by the time (Redis' clock, ms) at which they were made."""
        return f"{self.prefix}jobs:all"

    @property
    def owed(self) -> str:
        """Hash with the inputs of jobs that have no result yet, and the entries and tokens of jobs in the lanes."""
        return f"{self.prefix}jobs:owed"

    @property
    def results(self) -> str:
        """Stream of the jobs that have ended, for whoever works with their results."""
        return f"{self.prefix}results"

    def job(self, job_id: str) -> str:
        """Hash of what is known of a job; its inputs and results are beside it, under this and a suffix."""
        return f"{self.prefix}job:{job_id}"

    def idempotency(self, digest: str) -> str:
        """Hash with the job that a client made with an idempotency key."""
        return f"{self.prefix}idempotency:{digest}"

    def reply(self, request_id: str) -> str:
        """List of the replies to one request."""
        return f"{self.prefix}reply:{request_id}"

    def bell(self, gateway: str) -> str:
        """List of ids of requests whose replies are ready for this gateway."""
        return f"{self.prefix}bell:{gateway}"

    def submitted(self, gateway: str) -> str:
        """What the last submit of this gateway returned, so that repeating it adds nothing."""
        return f"{self.prefix}submitted:{gateway}"

    def worker(self, worker: str) -> str:
        """Heartbeat of a worker, as JSON."""
        return f"{self.prefix}worker:{worker}"

    def begun(self, worker: str) -> str:
        """The entries whose run this worker began last, so that a reclaim can count the attempt."""
        return f"{self.prefix}begun:{worker}"


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """The keys of a pool of GPUs, which workers of any queue share."""

    name: str

    @property
    def prefix(self) -> str:
        """What all keys of the pool begin with."""
        return f"rb:{{gpu:{self.name}}}:"

    @property
    def fence(self) -> str:
        """The last fence that was given."""
        return f"{self.prefix}fence"

    def slot(self, slot: str) -> str:
        """Who holds a slot, and under which fence."""
        return f"{self.prefix}slot:{slot}"

    def waiting(self, slots: Sequence[str]) -> list[str]:
        """Who waits for one of these slots: by when they asked first, and when they asked last."""
        these = ",".join(sorted(slots))
        return [f"{self.prefix}{what}:{these}" for what in ("waiting", "asked")]

    def wake(self, owner: str) -> str:
        """List on which somebody waits for a slot that is given back."""
        return f"{self.prefix}wake:{owner}"
