"""A cluster under load, the harm that is done to it, and what came of it."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio

from shared.keys import GROUP
from tests import plain_http
from tests.chaos.history import Call, Verdict, judge
from tests.chaos.load import load
from tests.integration.gateway.house import Gateway, House, lines_of, metrics_url, value_in
from tests.processes import Program
from tests.waiting import wait_until

MODEL = "simulated:base_ms=20,item_ms=1"
LIVELY: dict[str, Any] = {
    "reclaim_idle_ms": 1_000,
    "renew_ms": 200,
    "heartbeat_s": 0.5,
    "heartbeat_ttl_s": 2.0,
    "max_batch_size": 8,
    "claim_window": 16,
}
"""A worker whose death is noticed soon, with many small batches to die in."""

RECLAIM_BOUND_S = 1.5
"""Of such a worker: the reclaim's idle bound, and the time until somebody looks (a third of it, at most)."""

MARGIN_S, BRIEF_MARGIN_S = 1.0, 3.0
"""What a busy machine may add to a bound: in `make chaos`, and in the short form, which any machine has to pass."""

Figures = dict[str, object]


def name_of(worker: Program) -> str:
    """Returns the name under which a worker is in the group."""
    return str(next(line["worker"] for line in lines_of(worker) if line["msg"] == "worker starts"))


async def metric(program: Program, name: str) -> float:
    """Returns the sum of a metric over its labels, as the program's admin port has it."""
    async with plain_http.client() as client:
        return value_in((await client.get(metrics_url(program))).text, name)


@dataclass
class Scene:
    """Gateways, workers, and a client to look into their Redis, and to harm it.

    Attributes:
        thorough: whether it may take minutes.
        rows: what the test's scenes have found, for the table at the end.
    """

    house: House
    raw: redis.asyncio.Redis
    thorough: bool
    rows: list[Figures]
    gateways: list[Gateway] = field(default_factory=list)
    workers: list[Program] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(22))

    def times(self, few: int, many: int) -> int:
        """Returns how often to strike."""
        return many if self.thorough else few

    @property
    def margin_s(self) -> float:
        """What the machine may add to a bound."""
        return MARGIN_S if self.thorough else BRIEF_MARGIN_S

    async def open(self, gateways: int = 2, workers: int = 2, model: str = MODEL, **settings: object) -> None:
        """Starts a cluster of lively workers, and waits until its gateways see one, if there is any."""
        for _ in range(gateways):
            self.gateways.append(await self.house.gateway())
        for _ in range(workers):
            await self.hire(model, **settings)
        if workers:
            await self.seen()

    async def hire(self, model: str = MODEL, **settings: object) -> Program:
        """Starts one more worker."""
        worker = await self.house.worker(model, **LIVELY | settings)
        self.workers.append(worker)
        return worker

    async def seen(self) -> None:
        """Waits until the gateways see a worker. In threads: a proxy of theirs may run in this one."""

        async def serve() -> bool:
            return not any(await asyncio.gather(*(asyncio.to_thread(each.missing) for each in self.gateways)))

        await wait_until(serve, "the gateways see a worker", timeout_s=20)

    @asynccontextmanager
    async def load(self, clients: int = 32, timeout_s: float = 20.0) -> AsyncIterator[list[Call]]:
        """Has clients call the gateways until the end of the block; begins once some have been answered."""
        async with load([each.url for each in self.gateways], clients, timeout_s) as calls:
            await wait_until(lambda: len(calls) >= clients, "the load runs", timeout_s=20)
            yield calls

    async def owed(self, worker: str) -> int:
        """Returns how many entries a worker has claimed and not committed."""
        return (await self.held())[worker]

    async def held(self) -> Counter[str]:
        """Returns how many entries each worker has claimed and not committed."""
        held: Counter[str] = Counter()
        for lane in self.house.keys.lanes:
            summary: Any = await self.raw.xpending(lane, GROUP)
            held.update({row["name"].decode(): row["pending"] for row in summary["consumers"]})
        return held

    async def amid_work(self, worker: str, timeout_s: float = 5.0) -> None:
        """Returns at a moment at which a worker holds something."""
        held: Counter[str] = Counter()

        async def holds() -> bool:
            held.clear()
            held.update(await self.held())
            return held[worker] > 0

        def what() -> str:
            return f"{worker} holds something, where others hold {dict(held)}"

        await wait_until(holds, what, timeout_s=timeout_s, poll_s=0.001)

    async def busy_worker(self) -> tuple[Program, str]:
        """Returns any worker and its name, at a random moment at which it holds something."""
        await self.pause()
        worker = self.dice.choice(self.workers)
        await self.amid_work(name_of(worker))
        return worker, name_of(worker)

    async def stop_amid_work(self) -> tuple[Program, str]:
        """Stops any worker (SIGSTOP) at a random moment at which it holds something; returns it and its name."""
        for _ in range(100):
            worker, name = await self.busy_worker()
            worker.signal(signal.SIGSTOP)
            if await self.owed(name):
                return worker, name
            worker.signal(signal.SIGCONT)  # it has committed between the look and the signal
        raise AssertionError("no worker was stopped amid its work")

    async def taken_over(self, worker: str) -> float:
        """Waits until a worker owes nothing any more, since others took it over; returns how long that took, in s."""

        async def nothing_owed() -> bool:
            return await self.owed(worker) == 0

        return await seconds_until(nothing_owed, f"others have taken what {worker} held")

    async def pause(self, least_s: float = 0.02, most_s: float = 0.25) -> None:
        """Lets a random time pass."""
        await asyncio.sleep(self.dice.uniform(least_s, most_s))

    async def total(self, name: str) -> float:
        """Returns a metric's sum over the workers."""
        return sum([await metric(each, name) for each in self.workers])

    def fell_over(self) -> list[str]:
        """Returns the logs' last words of those who have ended, though nobody wanted them to."""
        programs = [*self.workers, *(each.program for each in self.gateways)]
        return [each.output[-2_000:] for each in programs if not each.running]

    async def drained(self, timeout_s: float = 15.0) -> None:
        """Waits until nothing waits, runs, or is owed."""

        async def empty() -> bool:
            return sum([int(await self.raw.xlen(lane)) for lane in self.house.keys.lanes]) == 0

        await wait_until(empty, "the queue is empty", timeout_s=timeout_s)

    def judge(self, fault: str, calls: Sequence[Call], **figures: object) -> Verdict:
        """Judges the calls, and notes what was found for the table. Figures are named with their units."""
        verdict = judge(calls)
        judged: Figures = {
            "calls": verdict.calls,
            "lost": verdict.lost,
            "misrouted": verdict.misrouted,
            "late": verdict.late,
            "slowest_s": round(verdict.slowest_s, 2),
        }
        self.note(fault, **judged | figures)
        return verdict

    def note(self, fault: str, **figures: object) -> None:
        """Notes for the table what else was found; columns that are not named are not judged there."""
        self.rows.append({"fault": fault} | figures)
        sys.stdout.write(f"{fault}: {figures}\n")


def whole(verdict: Verdict) -> bool:
    """Whether each call had its own vector by its deadline."""
    return (verdict.lost, verdict.misrouted, verdict.late, dict(verdict.others)) == (0, 0, 0, {})


async def seconds_until(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 20.0) -> float:
    """Waits for a condition; returns how long that took."""
    began = time.monotonic()
    await wait_until(condition, what, timeout_s=timeout_s)
    return time.monotonic() - began
