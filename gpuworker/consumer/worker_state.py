"""The state that the parts of one worker share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuworker.consumer.inflight import InFlightEntries
from gpuworker.consumer.redis_clock import RedisClock
from gpuworker.policy.circuit import Circuit, CircuitOptions
from gpuworker.policy.load_average import LoadAverage
from gpuworker.policy.recent_activity import RecentActivity
from gpuworker.policy.token_rate import TokenRate
from gpuworker.settings import WorkerSettings
from shared.connection import RedisConnection
from shared.keys import Keys

if TYPE_CHECKING:
    from gpuworker.tracing import Spans


@dataclass(slots=True)
class WorkerState:
    """The worker's name and settings, its view of the fleet, and the entries that it holds.

    Attributes:
        settings: of its process, with the one device of this worker.
        worker: its name, and that of its consumer.
        keys: names of the queue's Redis keys.
        control: its connection for all short commands.
        clock: of Redis.
        in_flight: the entries that it holds.
        workers: number of live workers of the queue.
        revision: of the model, once it is loaded.
        token_rate: measured rate of the engine.
        interactive_load: what interactive entries take of that rate.
        activity: what it did in the last seconds.
        circuit: whether its model works, so that it may claim.
        standby: whether it waits for a GPU, and keeps no entries.
        job_entries_answered: set when entries of jobs were answered.
        refused_calls: of the calls without which it cannot serve, those that Redis did not answer the last time.
        spans: records its batches if requests are traced.
    """

    settings: WorkerSettings
    worker: str
    keys: Keys
    control: RedisConnection
    clock: RedisClock = field(default_factory=RedisClock)
    in_flight: InFlightEntries = field(default_factory=InFlightEntries)
    workers: int = 1
    revision: str = ""
    token_rate: TokenRate = field(init=False)
    interactive_load: LoadAverage = field(default_factory=LoadAverage)
    activity: RecentActivity = field(default_factory=lambda: RecentActivity(time.monotonic()))
    circuit: Circuit = field(default_factory=lambda: Circuit(CircuitOptions(0.0, 0.0)))
    standby: bool = False
    job_entries_answered: asyncio.Event = field(default_factory=asyncio.Event)
    refused_calls: set[str] = field(default_factory=set)
    spans: Spans | None = None

    def __post_init__(self) -> None:
        self.token_rate = TokenRate(counts_gaps=self.settings.batching.wait_s == 0)

    @property
    def tokens_per_s(self) -> float:
        """Measured rate of the engine, in estimated tokens per second; 0 while it is not known."""
        return self.token_rate.at(time.monotonic())
