"""What the parts of one worker share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuworker.consumer.redis_clock import RedisClock
from gpuworker.consumer.inflight import Hands
from gpuworker.policy.fair_share import Demand
from gpuworker.settings import WorkerSettings
from shared.keys import Keys
from shared.connection import Link

if TYPE_CHECKING:
    from gpuworker.tracing import Spans


@dataclass(slots=True)
class Context:
    """The worker's name and settings, its view of the fleet, and what it holds.

    `control` is its connection for everything short; `workers` counts the live ones; `tokens_per_s` is the engine's
    measured rate in estimated tokens, 0 while unknown; `revision` is that of the model, once it is loaded; on `standby`
    it waits for a GPU, and keeps nothing; `demand` is told what interactive entries took of it; `jobs_moved` is set
    when entries of jobs were answered; `spans` are made of its batches if requests are traced.
    """

    settings: WorkerSettings
    worker: str
    keys: Keys
    control: Link
    clock: RedisClock = field(default_factory=RedisClock)
    hands: Hands = field(default_factory=Hands)
    workers: int = 1
    revision: str = ""
    tokens_per_s: float = 0.0
    demand: Demand = field(default_factory=Demand)
    standby: bool = False
    jobs_moved: asyncio.Event = field(default_factory=asyncio.Event)
    spans: Spans | None = None
