"""The state that the parts of one worker share, and that of each of its shards."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuworker.consumer.inflight import InFlightEntries, InFlightEntry
from gpuworker.consumer.redis_clock import RedisClock
from gpuworker.policy.circuit import Circuit, CircuitOptions
from gpuworker.policy.load_average import LoadAverage
from gpuworker.policy.recent_activity import RecentActivity
from gpuworker.policy.token_rate import TokenRate
from gpuworker.settings import WorkerSettings
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.usage_counts import Usage, UsageCounts

if TYPE_CHECKING:
    from gpuworker.tracing import Spans


HEARTBEAT, CLAIM, COMMIT = "heartbeat", "claim", "commit"
"""The calls without which a shard cannot be served."""


@dataclass(slots=True)
class WorkerState:
    """The worker's name and settings, the entries that it holds, and what is known of its engine.

    Attributes:
        settings: of its process, with the one device of this worker.
        worker: its name, and that of its consumer in each shard.
        in_flight: the entries that it holds, of all shards.
        shards: the shards that it serves.
        revision: of the model, once it is loaded.
        batch_tokens: maximum tokens of a batch.
        token_rate: measured rate of the engine.
        interactive_load: what interactive entries take of that rate.
        circuit: whether its model works, so that it may claim.
        standby: whether it waits for a GPU, and keeps no entries.
        stopping: whether it drains, and claims no more.
        spans: records its batches if requests are traced.
        usage: what tenants have used of it, until that is in Redis.
        queue: its name; to ask the settings takes ten times as long as to count an entry.
    """

    settings: WorkerSettings
    worker: str
    in_flight: InFlightEntries = field(default_factory=InFlightEntries)
    shards: list[ShardState] = field(default_factory=list)
    revision: str = ""
    batch_tokens: int = 1_024
    token_rate: TokenRate = field(init=False)
    interactive_load: LoadAverage = field(default_factory=LoadAverage)
    circuit: Circuit = field(default_factory=lambda: Circuit(CircuitOptions(0.0, 0.0)))
    standby: bool = False
    stopping: bool = False
    spans: Spans | None = None
    usage: UsageCounts = field(default_factory=UsageCounts)
    queue: str = field(init=False)

    def __post_init__(self) -> None:
        self.queue = self.settings.queue_name
        self.token_rate = TokenRate(counts_gaps=self.settings.batching.wait_s == 0)

    def usage_of(self, held: InFlightEntry) -> Usage:
        """Returns the counts of the tenant and the operation of an entry."""
        return self.usage.row(held.entry.tenant, self.queue, held.op)

    def count_answer(self, key: str, num_tokens: int) -> None:
        """Counts the inputs and tokens of an entry that it holds, after the commit of its answer was the first."""
        held = self.in_flight.get(key)
        if held is not None:
            usage = self.usage_of(held)
            usage.inputs += held.entry.ref.n
            usage.tokens += num_tokens

    @property
    def tokens_per_s(self) -> float:
        """Measured rate of the engine, in estimated tokens per second; 0 while it is not known."""
        return self.token_rate.at(time.monotonic())


@dataclass(slots=True)
class ShardState:
    """A shard of the queue as its worker sees it: a whole queue, in its own Redis. It adds itself to the worker's.

    Attributes:
        worker_state: of its worker.
        keys: names of the queue's Redis keys.
        control: its connection for all short commands.
        address: host and port of its Redis, for logs.
        number: its place among the shards of the worker.
        clock: of its Redis.
        workers: number of live workers of the shard.
        activity: what the worker did for it in the last seconds.
        job_entries_answered: set when entries of jobs were answered.
        heartbeat_due: set when the next heartbeat is to be sent at once.
        uncommitted_since: since when answers do not reach its Redis (monotonic clock); None: they do, although it may
            refuse one of them.
        refused_calls: of the calls without which it cannot be served, those that Redis did not answer the last time.
    """

    worker_state: WorkerState
    keys: Keys
    control: RedisConnection
    address: str = ""
    number: int = field(init=False)
    clock: RedisClock = field(default_factory=RedisClock)
    workers: int = 1
    activity: RecentActivity = field(default_factory=lambda: RecentActivity(time.monotonic()))
    job_entries_answered: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeat_due: asyncio.Event = field(default_factory=asyncio.Event)
    uncommitted_since: float | None = None
    refused_calls: set[str] = field(default_factory=lambda: {HEARTBEAT})

    def __post_init__(self) -> None:
        self.number = len(self.worker_state.shards)
        self.worker_state.shards.append(self)

    @property
    def is_served(self) -> bool:
        """Whether its Redis answers."""
        return not self.refused_calls

    def record_call(self, call: str, *, is_answered: bool) -> None:
        """Records whether Redis has answered a call. With the number of shards that are served, the rates change."""
        was_served = self.is_served
        if is_answered:
            self.refused_calls.discard(call)
        else:
            self.refused_calls.add(call)
        if self.is_served != was_served:
            for each in self.worker_state.shards:
                if each is not self:
                    each.heartbeat_due.set()

    @property
    def rate_share(self) -> float:
        """What part of the engine's rate is for it: each shard whose Redis answers has the same."""
        return 1 / (1 + sum(each.is_served for each in self.worker_state.shards if each is not self))
