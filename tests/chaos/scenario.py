"""A cluster under load, the faults that are injected into it, and the figures of the outcome."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis.asyncio

from shared.keys import GROUP
from tests import plain_http
from tests.chaos.history import Call, Verdict, judge
from tests.chaos.load import load
from tests.chaos.paced_load import paced_load
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    log_lines,
    metric_value,
    metrics_url,
)
from tests.integration.gateway.http_ways import Way
from tests.operations import EMBED, SCORE, Operation
from tests.processes import Program
from tests.waiting import wait_until

MODEL = "simulated:base_ms=20,item_ms=1"
FAST_WORKER: dict[str, Any] = {
    "reclaim_idle_ms": 1_000,
    "renew_ms": 200,
    "heartbeat_s": 0.5,
    "heartbeat_ttl_s": 2.0,
    "max_batch_size": 8,
    "claim_window": 16,
}
"""Settings of a worker whose death is noticed soon, and which runs many small batches."""

RECLAIM_BOUND_S = 1.5
"""Maximum time until the entries of such a worker are reclaimed: the idle bound of the reclaim, and up to a third of it
until another worker checks."""

MARGIN_S, BRIEF_MARGIN_S = 1.0, 3.0
"""Time that a busy machine may add to a bound: in `make chaos`, and in the short form, which must pass everywhere."""

PACED_TIMEOUT_S = 10.0
LONG_GRACE_S = 10
LONG_GRACE = {"REDBATCH_REDIS_GRACE_S": str(LONG_GRACE_S)}
"""For gateways of scenes where Redis is away for seconds: with the default of 5 s, a stall or a failover that a busy
machine makes longer would end in refusals."""

Figures = dict[str, object]

on_shards = pytest.mark.parametrize(
    "num_shards",
    [pytest.param(1, id=pytest.HIDDEN_PARAM), pytest.param(2, id="2 shards", marks=pytest.mark.long)],
    indirect=True,
)
"""Runs a scene with one Redis, and with a queue of two shards."""

on_operations = pytest.mark.parametrize(
    "operation",
    [pytest.param(EMBED, id=pytest.HIDDEN_PARAM), pytest.param(SCORE, id="score", marks=pytest.mark.long)],
    indirect=True,
)
"""Runs a scene with requests for vectors, and with requests for scores."""

on_shards_and_operations = pytest.mark.parametrize(
    ("num_shards", "operation"),
    [
        pytest.param(1, EMBED, id=pytest.HIDDEN_PARAM),
        pytest.param(2, EMBED, id="2 shards", marks=pytest.mark.long),
        pytest.param(1, SCORE, id="score", marks=pytest.mark.long),
    ],
    indirect=True,
)
"""Runs a scene as `on_shards` does, and with requests for scores."""


def worker_name(worker: Program) -> str:
    """Returns the name of a worker in the consumer group."""
    return str(next(line["worker"] for line in log_lines(worker) if line["msg"] == "worker starts"))


async def metric(program: Program, name: str) -> float:
    """Returns the sum of a metric over its labels, from the program's admin port."""
    async with plain_http.client() as client:
        return metric_value((await client.get(metrics_url(program))).text, name)


@dataclass
class Scenario:
    """Gateways, workers, and a client that inspects their Redis and injects faults into it.

    Attributes:
        thorough: whether the scenario may take minutes.
        rows: figures of the test's scenarios, for the table at the end.
        further_shards: clients of the other Redis, if the queue has several shards.
        operation: what the load requests.
    """

    cluster: GatewayCluster
    raw: redis.asyncio.Redis
    thorough: bool
    rows: list[Figures]
    gateways: list[GatewayProcess] = field(default_factory=list)
    workers: list[Program] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(22))
    further_shards: Sequence[redis.asyncio.Redis] = ()
    operation: Operation = EMBED

    @property
    def shards(self) -> list[redis.asyncio.Redis]:
        """The clients of all Redis."""
        return [self.raw, *self.further_shards]

    def repeats(self, few: int, many: int) -> int:
        """Returns how often to inject a fault: `few` in the short form, `many` in `make chaos`."""
        return many if self.thorough else few

    @property
    def margin_s(self) -> float:
        """Time in s that the machine may add to a bound."""
        return MARGIN_S if self.thorough else BRIEF_MARGIN_S

    @property
    def extra_s(self) -> float:
        """Time in s that the machine may add to a bound in the short form; the long one keeps what is promised."""
        return 0.0 if self.thorough else self.margin_s

    async def start(self, gateways: int = 2, workers: int = 2, model: str = MODEL, **settings: object) -> None:
        """Starts a cluster with FAST_WORKER settings, and waits until its gateways see a worker if there is one."""
        for _ in range(gateways):
            self.gateways.append(await self.cluster.start_gateway())
        for _ in range(workers):
            await self.start_worker(model, **settings)
        if workers:
            await self.wait_until_worker_seen()

    async def start_worker(self, model: str = MODEL, **settings: object) -> Program:
        """Starts one more worker of a simulated model."""
        worker = await self.cluster.start_worker(self.operation.model(model), **FAST_WORKER | settings)
        self.workers.append(worker)
        return worker

    async def wait_until_worker_seen(self) -> None:
        """Waits until the gateways see a worker. Uses threads, since a proxy of the gateways may run in this one."""

        async def serve() -> bool:
            return not any(await asyncio.gather(*(asyncio.to_thread(each.missing) for each in self.gateways)))

        await wait_until(serve, "the gateways see a worker", timeout_s=20)

    @asynccontextmanager
    async def load(
        self, clients: int = 32, timeout_s: float = 20.0, way: Way | None = None
    ) -> AsyncIterator[list[Call]]:
        """Runs clients until the end of the block, which begins when one call per client has ended.

        They call the gateways in turn, or one of them over `way`.
        """
        urls = [each.url for each in self.gateways] if way is None else [way.url]
        headers, tls = (None, None) if way is None else ({"x-api-key": way.api_key}, way.tls)
        async with load(urls, clients, timeout_s, headers, tls, self.operation) as calls:
            await wait_until(lambda: len(calls) >= clients, "the load runs", timeout_s=20)
            yield calls

    @asynccontextmanager
    async def paced_load(self, few_calls_per_s: float = 100.0) -> AsyncIterator[list[Call]]:
        """Calls the gateways, 200 times a second in `make chaos`, for a second before the block and one after it."""
        urls = [each.url for each in self.gateways]
        async with paced_load(urls, 200.0 if self.thorough else few_calls_per_s, PACED_TIMEOUT_S) as calls:
            await asyncio.sleep(1.0)
            yield calls
            await asyncio.sleep(1.0)

    async def resubmitted(self) -> int:
        """Returns the number of entries that gateways have submitted again."""
        name = "redbatch_resubmitted_entries_total"
        return int(sum([await metric(each.program, name) for each in self.gateways]))

    async def pending_of(self, worker: str) -> int:
        """Returns the number of entries that a worker has claimed and not committed."""
        return (await self.pending_by_worker())[worker]

    async def pending_by_worker(self) -> Counter[str]:
        """Returns the number of entries that each worker has claimed and not committed."""
        held: Counter[str] = Counter()
        for raw, lane in itertools.product(self.shards, self.cluster.keys.lanes):
            summary: Any = await raw.xpending(lane, GROUP)
            held.update({row["name"].decode(): row["pending"] for row in summary["consumers"]})
        return held

    async def num_entries(self) -> int:
        """Returns the number of entries that wait or run."""
        places = itertools.product(self.shards, self.cluster.keys.lanes)
        return sum([int(await raw.xlen(lane)) for raw, lane in places])

    async def wait_for_entries(self) -> int:
        """Waits until an entry waits or runs; returns how many do."""
        number = 0

        async def some_there() -> bool:
            nonlocal number
            number = await self.num_entries()
            return number > 0

        await wait_until(some_there, "an entry waits or runs", poll_s=0.001)
        return number

    async def wait_until_busy(self, worker: str, timeout_s: float = 30.0) -> None:
        """Waits until a worker holds an entry."""
        held: Counter[str] = Counter()

        async def holds() -> bool:
            held.clear()
            held.update(await self.pending_by_worker())
            return held[worker] > 0

        def what() -> str:
            return f"{worker} holds an entry; all workers hold {dict(held)}"

        await wait_until(holds, what, timeout_s=timeout_s, poll_s=0.001)

    async def pick_busy_worker(self) -> tuple[Program, str]:
        """Returns a random worker and its name, at a random moment at which it holds an entry."""
        await self.sleep_randomly()
        worker = self.rng.choice(self.workers)
        await self.wait_until_busy(worker_name(worker))
        return worker, worker_name(worker)

    async def stop_busy_worker(self) -> tuple[Program, str]:
        """Stops a random worker (SIGSTOP) at a random moment at which it holds an entry; returns it and its name.

        Raises AssertionError: none was stopped in 100 attempts.
        """
        for _ in range(100):
            worker, name = await self.pick_busy_worker()
            worker.signal(signal.SIGSTOP)
            if await self.pending_of(name):
                return worker, name
            worker.signal(signal.SIGCONT)  # it has committed between the check and the signal
        raise AssertionError("no worker was stopped while it held an entry")

    async def wait_until_taken_over(self, worker: str) -> float:
        """Waits until others have taken over all entries of a worker; returns how long that took, in s."""

        async def nothing_pending() -> bool:
            return await self.pending_of(worker) == 0

        return await seconds_until(nothing_pending, f"others have taken over the entries of {worker}")

    async def sleep_randomly(self, min_s: float = 0.02, max_s: float = 0.25) -> None:
        """Sleeps for a random time between two bounds (s)."""
        await asyncio.sleep(self.rng.uniform(min_s, max_s))

    async def num_runs(self) -> float:
        """Returns how many requests the workers have run, counted by their inputs."""
        return await self.worker_metric("redbatch_inputs_total") / self.operation.num_inputs

    async def worker_metric(self, name: str) -> float:
        """Returns the sum of a metric over the workers."""
        return sum([await metric(each, name) for each in self.workers])

    def crash_logs(self) -> list[str]:
        """Returns the ends of the logs of processes that have ended unexpectedly."""
        programs = [*self.workers, *(each.program for each in self.gateways)]
        return [each.output[-2_000:] for each in programs if not each.running]

    async def wait_until_drained(self, timeout_s: float = 15.0) -> None:
        """Waits until no entry waits or runs."""

        async def empty() -> bool:
            return await self.num_entries() == 0

        await wait_until(empty, "the queue is empty", timeout_s=timeout_s)

    def judge(self, fault: str, calls: Sequence[Call], **figures: object) -> Verdict:
        """Returns the verdict on the calls and records it for the table with other figures, named with their units."""
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
        """Records figures for the table; a column without a figure shows that the scenario does not judge it."""
        if self.further_shards:
            fault += f", {len(self.shards)} shards"
        if self.operation is not EMBED:
            fault += f", {self.operation.name}"
        self.rows.append({"fault": fault} | figures)
        sys.stdout.write(f"{fault}: {figures}\n")


def all_correct(verdict: Verdict) -> bool:
    """Returns whether there were calls, and each got its own vector by its deadline."""
    return verdict.calls > 0 and (verdict.lost, verdict.misrouted, verdict.late, dict(verdict.others)) == (0, 0, 0, {})


async def seconds_until(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 20.0) -> float:
    """Waits for a condition; returns how long that took, in s."""
    began = time.monotonic()
    await wait_until(condition, what, timeout_s=timeout_s)
    return time.monotonic() - began
