"""F20: workers that share a GPU by a lease, and lose it.

The model is a function that records every few milliseconds of its batches by process, so that every overlap is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from gpuworker.gpu.lease import POLL_S
from redbatch.up.local_redis import LocalRedis
from shared.keys import PoolKeys
from tests import plain_http
from tests.chaos.scenario import Scenario, seconds_until, worker_name
from tests.chaos.test_workers import engine_of
from tests.chaos.usage_recorder import overlap_s, usage_intervals
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

TTL_S, LEASE_MARGIN_S = 2.0, 0.3
HANG_S = 1.0
LOAD_S = 2.5
"""Time to load the model: longer than a lease lasts."""

LOAD_CLIENTS = 8
TIMEOUT_MS = 20_000
RECORDER = "tests.chaos.usage_recorder:UsageRecorder"
ROOT = Path(__file__).parents[2]
GRANTED = "gpu lease acquired"


@dataclass
class SharedGpu:
    """A cluster whose workers share one slot, or one of each of several GPUs, and their records of usage."""

    scenario: Scenario
    folder: Path
    mode: str
    gpus: int = 0

    @property
    def pool(self) -> PoolKeys:
        """Pool for this test only."""
        return PoolKeys(self.scenario.cluster.queue)

    def gpu_folders(self) -> list[Path]:
        """Returns the folders with the records of each GPU."""
        return [self.folder / str(gpu) for gpu in range(self.gpus)] if self.gpus else [self.folder]

    async def start_worker(self) -> Program:
        """Starts a worker, which may have to stand by; returns when it logs its start."""
        cluster = self.scenario.cluster
        env = cluster.env(
            model=RECORDER,
            model_args=json.dumps({"folder": str(self.folder), "load_s": LOAD_S}),
            device="auto" if self.gpus else "cpu",
            gpu_lease=self.mode,
            gpu_lease_gpus=self.gpus or 1,
            gpu_lease_pool=cluster.queue,
            gpu_lease_ttl_s=TTL_S,
            gpu_lease_margin_s=LEASE_MARGIN_S,
            reclaim_idle_ms=1_000,
            renew_ms=200,
            engine_hang_s=HANG_S,
            heartbeat_s=0.5,
            heartbeat_ttl_s=2.0,
            max_batch_size=4,
        )
        program = await cluster.processes.start("worker", "gpuworker", env | {"PYTHONPATH": str(ROOT)})
        self.scenario.workers.append(program)
        await wait_until(lambda: bool(program.log_records("worker starts")), "the worker starts", timeout_s=20)
        return program

    async def start(self, number: int = 2) -> list[Program]:
        """Starts a gateway and workers; the first worker takes the lease."""
        self.scenario.gateways.append(await self.scenario.cluster.start_gateway())
        workers = [await self.start_worker()]
        await self.scenario.wait_until_worker_seen()
        workers += [await self.start_worker() for _ in range(number - 1)]
        return workers

    async def wait_until_taken_over(self, by: Program, before: int = 0) -> float:
        """Waits until a worker has taken the lease more than `before` times; returns the time in s."""

        async def granted() -> bool:
            return len(by.log_records(GRANTED)) > before

        return await seconds_until(granted, "the lease is taken over", timeout_s=20)

    async def stop_engine_in_its_turn(self, workers: list[Program]) -> psutil.Process:
        """Stops the engine of a worker while it has the turn; returns its process."""
        for worker in itertools.cycle(workers):
            engine = engine_of(worker)
            assert engine is not None
            engine.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.2)
            held = str(await self.scenario.raw.get(self.pool.slot("0.0")) or "")
            if worker_name(worker) in held:
                return engine
            engine.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
        raise AssertionError("no worker had a turn")

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Counter[str]]:
        """Requests outputs until the end of the block; counts the answers by whether they are right."""
        found: Counter[str] = Counter()
        stop = asyncio.Event()
        numbers = itertools.count()
        url = f"{self.scenario.gateways[0].url}/predict"

        async def call(client: httpx.AsyncClient) -> None:
            while not stop.is_set():
                number = next(numbers)
                answer = await client.post(url, json={"input": number, "timeout_ms": TIMEOUT_MS})
                right = answer.status_code == httpx.codes.OK and answer.json() == {"output": number}
                found["right" if right else f"{answer.status_code} {answer.text}"] += 1

        async with plain_http.client(timeout=2 * TIMEOUT_MS / 1000) as client:
            tasks = [asyncio.create_task(call(client)) for _ in range(LOAD_CLIENTS)]
            try:
                await wait_until(lambda: found.total() >= LOAD_CLIENTS, "the load runs", timeout_s=20)
                yield found
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    def note(self, fault: str, found: Counter[str], **figures: object) -> float:
        """Records the figures; returns the longest time in s for which two processes used the device at once.

        Raises AssertionError: a call failed.
        """
        overlap = round(max(overlap_s(each, by_batch=self.mode == "batch") for each in self.gpu_folders()), 3)
        lost = found.total() - found["right"]
        self.scenario.note(f"F20 {fault}", calls=found.total(), lost=lost, overlap_s=overlap, **figures)
        assert set(found) == {"right"}
        return overlap


def share_gpu(scenario: Scenario, folder: Path, mode: str = "exclusive") -> SharedGpu:
    """Returns a cluster of workers that share a GPU, with a folder for their records."""
    return SharedGpu(scenario, folder, mode)


def signal_session(worker: Program, number: signal.Signals) -> None:
    """Sends a signal to a worker, its fork server and its engine."""
    for each in worker.session():
        with contextlib.suppress(psutil.NoSuchProcess):  # the first of them may have ended the others
            each.send_signal(number)


async def wait_for_calls(found: Counter[str], more: int = 100) -> None:
    """Waits until `more` calls are answered, including suspects of the last fault, which run last."""
    until = found.total() + more
    await wait_until(lambda: found.total() >= until, "calls are answered", timeout_s=30)


@pytest.mark.long
async def test_a_standby_takes_over_from_a_killed_holder(scenario: Scenario, tmp_path: Path) -> None:
    """When the holder and its engine are killed with SIGKILL, the standby gets the GPU after the lease has expired."""
    cluster = share_gpu(scenario, tmp_path)
    active, standby = await cluster.start()
    takeovers_s = []
    async with cluster.load() as found:
        for _ in range(scenario.repeats(1, 5)):
            await wait_for_calls(found)
            before = len(standby.log_records(GRANTED))
            active.kill()
            scenario.workers.remove(active)
            takeovers_s.append(await cluster.wait_until_taken_over(standby, before))
            active, standby = standby, await cluster.start_worker()
        await wait_for_calls(found)
    overlap = cluster.note("holder killed", found, kills=len(takeovers_s), taken_over_s=round(max(takeovers_s), 2))
    assert overlap == 0
    assert max(takeovers_s) <= TTL_S + POLL_S + scenario.margin_s


@pytest.mark.long
async def test_a_holder_that_leaves_hands_over_at_once(scenario: Scenario, tmp_path: Path) -> None:
    """After SIGTERM the holder finishes and releases the lease, so that the standby need not wait for its expiry."""
    cluster = share_gpu(scenario, tmp_path)
    active, standby = await cluster.start()
    async with cluster.load() as found:
        await wait_for_calls(found)
        assert await active.stop() == 0
        scenario.workers.remove(active)
        takeover_s = await cluster.wait_until_taken_over(standby)
        await wait_for_calls(found)
    overlap = cluster.note("holder drained", found, taken_over_s=round(takeover_s, 2))
    assert overlap == 0
    assert takeover_s <= POLL_S + scenario.margin_s


@pytest.mark.long
@pytest.mark.parametrize("whole", [True, False], ids=["with its engine", "alone"])
async def test_a_holder_that_is_paused_loses_it(scenario: Scenario, tmp_path: Path, whole: bool) -> None:
    """When the holder is stopped until another has the GPU, its engine ends itself: in time, or when it is resumed."""
    cluster = share_gpu(scenario, tmp_path)
    active, standby = await cluster.start()
    takeovers_s = []
    async with cluster.load() as found:
        for _ in range(scenario.repeats(1, 5)):
            await wait_for_calls(found)
            engine = engine_of(active)
            assert engine is not None
            before = len(standby.log_records(GRANTED))
            signal_session(active, signal.SIGSTOP) if whole else active.signal(signal.SIGSTOP)
            takeovers_s.append(await cluster.wait_until_taken_over(standby, before))
            assert engine.is_running() == whole
            await wait_for_calls(found)
            signal_session(active, signal.SIGCONT)
            await wait_until(lambda gone=engine: not gone.is_running(), "the old engine ends")  # type: ignore[misc]
            active, standby = standby, active
    overlap = cluster.note(
        f"holder paused {'with its engine' if whole else 'and not its engine'}",
        found,
        pauses=len(takeovers_s),
        taken_over_s=round(max(takeovers_s), 2),
    )
    assert overlap <= LEASE_MARGIN_S
    assert max(takeovers_s) <= TTL_S + POLL_S + scenario.margin_s


@pytest.mark.long
async def test_a_deleted_lease_has_one_holder(scenario: Scenario, tmp_path: Path) -> None:
    """The holder of a deleted lease takes it again at its next renewal, or leaves if another worker was faster."""
    cluster = share_gpu(scenario, tmp_path)
    first, second = await cluster.start()
    faults = scenario.repeats(2, 20)
    async with cluster.load() as found:
        for _ in range(faults):
            await wait_for_calls(found)
            await scenario.raw.delete(cluster.pool.slot("0.0"))
            await asyncio.sleep(TTL_S)
    changes = len(first.log_records(GRANTED)) + len(second.log_records(GRANTED)) - 1
    overlap = cluster.note("lease deleted", found, faults=faults, changes=changes)
    assert overlap <= TTL_S / 3 + LEASE_MARGIN_S


@pytest.mark.long
@pytest.mark.parametrize("own_redis", [[]], indirect=True, ids=["no log"])
async def test_a_lease_survives_redis(own_scenario: Scenario, own_redis: LocalRedis, tmp_path: Path) -> None:
    """After Redis was killed and has started without data, one worker has the lease, and calls are answered."""
    cluster = share_gpu(own_scenario, tmp_path)
    await cluster.start()
    faults = own_scenario.repeats(1, 5)
    async with cluster.load() as found:
        for _ in range(faults):
            await wait_for_calls(found)
            os.kill(own_redis.pid, signal.SIGKILL)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own_redis.start)
            await wait_for_calls(found, LOAD_CLIENTS)
    overlap = cluster.note("Redis lost its data", found, faults=faults)
    assert overlap <= TTL_S / 3 + LEASE_MARGIN_S


@pytest.mark.long
async def test_workers_take_turns_batch_by_batch(scenario: Scenario, tmp_path: Path) -> None:
    """Three workers on one GPU never run two batches at once, and get similar numbers of turns."""
    cluster = share_gpu(scenario, tmp_path, "batch")
    await cluster.start(3)
    await wait_until(
        lambda: all(worker.log_records("engine ready") for worker in scenario.workers), "all are ready", timeout_s=30
    )
    async with cluster.load() as found:
        await wait_for_calls(found, scenario.repeats(200, 2_000))
    turns = Counter(each.process for each in usage_intervals(tmp_path, by_batch=True))
    overlap = cluster.note("turns by the batch", found, turns=turns.total(), fewest_turns=min(turns.values()))
    assert overlap == 0
    assert len(turns) == 3
    assert min(turns.values()) >= turns.total() / 6


async def test_workers_take_turns_on_each_gpu_of_a_pool(scenario: Scenario, tmp_path: Path) -> None:
    """Of two GPUs, which the function only records: each of three workers uses both, and none while another does."""
    cluster = SharedGpu(scenario, tmp_path, "batch", gpus=2)
    await cluster.start(3)
    await wait_until(
        lambda: all(len(worker.log_records("engine ready")) == 2 for worker in scenario.workers),
        "all are ready",
        timeout_s=40,
    )
    async with cluster.load() as found:
        await wait_for_calls(found, scenario.repeats(200, 1_000))
    turns = [Counter(each.process for each in usage_intervals(gpu, by_batch=True)) for gpu in cluster.gpu_folders()]
    overlap = cluster.note("turns on a pool of two GPUs", found, turns=[each.total() for each in turns])
    assert overlap == 0
    assert [len(each) for each in turns] == [3, 3]


@pytest.mark.long
async def test_a_turn_is_lost_with_its_engine(scenario: Scenario, tmp_path: Path) -> None:
    """A worker kills its engine that hangs in its turn, after renewing the lease until then; the others continue."""
    cluster = share_gpu(scenario, tmp_path, "batch")
    workers = await cluster.start()
    await wait_until(
        lambda: all(worker.log_records("engine ready") for worker in workers), "all are ready", timeout_s=30
    )
    kills_s = []
    async with cluster.load() as found:
        for _ in range(scenario.repeats(1, 5)):
            await wait_for_calls(found)
            engine = await cluster.stop_engine_in_its_turn(workers)
            began = time.monotonic()
            await wait_until(lambda gone=engine: not gone.is_running(), "it is killed", timeout_s=10)  # type: ignore[misc]
            kills_s.append(time.monotonic() - began)
            await wait_for_calls(found)
    overlap = cluster.note("engine stopped in its turn", found, stops=len(kills_s), killed_s=round(max(kills_s), 2))
    assert overlap == 0
    assert max(kills_s) <= 2 * HANG_S + scenario.margin_s
