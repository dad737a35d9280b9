"""F20: workers that share a GPU by a lease, and lose it. Each notes when it computes, so that no overlap is missed.

A function stands for the model: it notes every few milliseconds of its batches, by process.
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

from gpuworker.lease import POLL_S
from redbatch.local_redis import LocalRedis
from shared.keys import Pool
from tests import plain_http
from tests.chaos.scenario import Scene, name_of, seconds_until
from tests.chaos.test_workers import engine_of
from tests.chaos.usage_recorder import overlap_s, stretches
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

TTL_S, LEASE_MARGIN_S = 2.0, 0.3
HANG_S = 1.0
LOAD_S = 2.5
"""A model takes longer to load than a lease lasts."""

LOAD_CLIENTS = 8
TIMEOUT_MS = 20_000
TICKING = "tests.chaos.usage_recorder:Ticking"
ROOT = Path(__file__).parents[2]
GRANTED = "a GPU is this worker's"


@dataclass
class Sharing:
    """Workers that share one slot, and what they note."""

    scene: Scene
    folder: Path
    mode: str

    @property
    def pool(self) -> Pool:
        """Of the test's own."""
        return Pool(self.scene.house.queue)

    async def hire(self) -> Program:
        """Starts a worker, which may have to stand by; returns when it says that it lives."""
        house = self.scene.house
        env = house.env(
            model=TICKING,
            model_args=json.dumps({"folder": str(self.folder), "load_s": LOAD_S}),
            device="cpu",
            gpu_lease=self.mode,
            gpu_lease_pool=house.queue,
            gpu_lease_ttl_s=TTL_S,
            gpu_lease_margin_s=LEASE_MARGIN_S,
            reclaim_idle_ms=1_000,
            renew_ms=200,
            engine_hang_s=HANG_S,
            heartbeat_s=0.5,
            heartbeat_ttl_s=2.0,
            max_batch_size=4,
        )
        program = await house.processes.start("worker", "gpuworker", env | {"PYTHONPATH": str(ROOT)})
        self.scene.workers.append(program)
        await wait_until(lambda: bool(program.logged("worker starts")), "the worker starts", timeout_s=20)
        return program

    async def open(self, workers: int = 2) -> list[Program]:
        """Starts a gateway and workers, the first of which has the lease first."""
        self.scene.gateways.append(await self.scene.house.gateway())
        hired = [await self.hire()]
        await self.scene.seen()
        hired += [await self.hire() for _ in range(workers - 1)]
        return hired

    async def taken_over(self, by: Program, before: int = 0) -> float:
        """Waits until a worker has the lease once more than before; returns how long that took."""

        async def granted() -> bool:
            return len(by.logged(GRANTED)) > before

        return await seconds_until(granted, "the lease is taken over", timeout_s=20)

    async def engine_stopped_amid_its_turn(self, workers: list[Program]) -> psutil.Process:
        """Stops the engine of any worker while it has the turn; returns it."""
        for worker in itertools.cycle(workers):
            engine = engine_of(worker)
            assert engine is not None
            engine.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.2)
            held = str(await self.scene.raw.get(self.pool.slot("0.0")) or "")
            if name_of(worker) in held:
                return engine
            engine.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
        raise AssertionError("no worker has had a turn")

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Counter[str]]:
        """Asks for outputs until the end of the block; counts what came, each of which must be its own."""
        found: Counter[str] = Counter()
        over = asyncio.Event()
        numbers = itertools.count()
        url = f"{self.scene.gateways[0].url}/predict"

        async def ask(client: httpx.AsyncClient) -> None:
            while not over.is_set():
                number = next(numbers)
                answer = await client.post(url, json={"input": number, "timeout_ms": TIMEOUT_MS})
                right = answer.status_code == httpx.codes.OK and answer.json() == {"output": number}
                found["right" if right else f"{answer.status_code} {answer.text}"] += 1

        async with plain_http.client(timeout=2 * TIMEOUT_MS / 1000) as client:
            asking = [asyncio.create_task(ask(client)) for _ in range(LOAD_CLIENTS)]
            try:
                await wait_until(lambda: found.total() >= LOAD_CLIENTS, "the load runs", timeout_s=20)
                yield found
            finally:
                over.set()
                await asyncio.gather(*asking)

    def note(self, fault: str, found: Counter[str], **figures: object) -> float:
        """Notes what came of it; returns for how long two have used the device at once, in s."""
        overlap = round(overlap_s(self.folder, by_batch=self.mode == "batch"), 3)
        lost = found.total() - found["right"]
        self.scene.note(f"F20 {fault}", calls=found.total(), lost=lost, overlap_s=overlap, **figures)
        assert set(found) == {"right"}
        return overlap


def sharing(scene: Scene, folder: Path, mode: str = "exclusive") -> Sharing:
    """Returns workers that share, with a folder for their notes."""
    return Sharing(scene, folder, mode)


def everything_of(worker: Program, number: signal.Signals) -> None:
    """Sends a worker, its fork server and its engine a signal."""
    for each in worker.session():
        with contextlib.suppress(psutil.NoSuchProcess):  # the first of them may have ended the others by now
            each.send_signal(number)


async def answered(found: Counter[str], more: int = 100) -> None:
    """Waits until so many calls are answered, those too that the last harm has made suspects: they come last."""
    until = found.total() + more
    await wait_until(lambda: found.total() >= until, "calls are answered", timeout_s=30)


@pytest.mark.long
async def test_whoever_stands_by_takes_over_from_the_dead(scene: Scene, tmp_path: Path) -> None:
    """The holder is killed with -9 amid its work, with its engine; the other has the GPU when the lease has run out."""
    cluster = sharing(scene, tmp_path)
    active, standby = await cluster.open()
    took = []
    async with cluster.load() as found:
        for _ in range(scene.times(1, 5)):
            await answered(found)
            before = len(standby.logged(GRANTED))
            active.kill()
            scene.workers.remove(active)
            took.append(await cluster.taken_over(standby, before))
            active, standby = standby, await cluster.hire()
        await answered(found)
    overlap = cluster.note("holder killed", found, kills=len(took), taken_over_s=round(max(took), 2))
    assert overlap == 0
    assert max(took) <= TTL_S + POLL_S + scene.margin_s


@pytest.mark.long
async def test_a_holder_that_leaves_hands_over_at_once(scene: Scene, tmp_path: Path) -> None:
    """SIGTERM: it finishes, gives the lease back, and nobody waits for the end of it."""
    cluster = sharing(scene, tmp_path)
    active, standby = await cluster.open()
    async with cluster.load() as found:
        await answered(found)
        assert await active.stop() == 0
        scene.workers.remove(active)
        took = await cluster.taken_over(standby)
        await answered(found)
    overlap = cluster.note("holder drained", found, taken_over_s=round(took, 2))
    assert overlap == 0
    assert took <= POLL_S + scene.margin_s


@pytest.mark.long
@pytest.mark.parametrize("whole", [True, False], ids=["with its engine", "alone"])
async def test_a_holder_that_is_paused_loses_it(scene: Scene, tmp_path: Path, whole: bool) -> None:
    """Stopped amid its work until another has the GPU. Its engine ends itself: at its time, or when it goes on."""
    cluster = sharing(scene, tmp_path)
    active, standby = await cluster.open()
    took = []
    async with cluster.load() as found:
        for _ in range(scene.times(1, 5)):
            await answered(found)
            engine = engine_of(active)
            assert engine is not None
            before = len(standby.logged(GRANTED))
            everything_of(active, signal.SIGSTOP) if whole else active.signal(signal.SIGSTOP)
            took.append(await cluster.taken_over(standby, before))
            assert engine.is_running() == whole
            await answered(found)
            everything_of(active, signal.SIGCONT)
            await wait_until(lambda gone=engine: not gone.is_running(), "the old engine ends")  # type: ignore[misc]
            active, standby = standby, active
    overlap = cluster.note(
        f"holder paused {'with its engine' if whole else 'and not its engine'}",
        found,
        pauses=len(took),
        taken_over_s=round(max(took), 2),
    )
    assert overlap <= LEASE_MARGIN_S
    assert max(took) <= TTL_S + POLL_S + scene.margin_s


@pytest.mark.long
async def test_a_lease_that_somebody_deletes_is_had_by_one(scene: Scene, tmp_path: Path) -> None:
    """Its holder finds out at its next renewal, and has it again, or leaves, if another was faster."""
    cluster = sharing(scene, tmp_path)
    first, second = await cluster.open()
    strikes = scene.times(2, 20)
    async with cluster.load() as found:
        for _ in range(strikes):
            await answered(found)
            await scene.raw.delete(cluster.pool.slot("0.0"))
            await asyncio.sleep(TTL_S)
    changes = len(first.logged(GRANTED)) + len(second.logged(GRANTED)) - 1
    overlap = cluster.note("lease deleted", found, strikes=strikes, changes=changes)
    assert overlap <= TTL_S / 3 + LEASE_MARGIN_S


@pytest.mark.long
@pytest.mark.parametrize("own_redis", [[]], indirect=True, ids=["no log"])
async def test_a_lease_survives_redis(own_scene: Scene, own_redis: LocalRedis, tmp_path: Path) -> None:
    """Redis is killed and comes back with nothing: one of the two has the lease, and calls are answered."""
    cluster = sharing(own_scene, tmp_path)
    await cluster.open()
    strikes = own_scene.times(1, 5)
    async with cluster.load() as found:
        for _ in range(strikes):
            await answered(found)
            os.kill(own_redis.pid, signal.SIGKILL)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own_redis.start)
            await answered(found, LOAD_CLIENTS)
    overlap = cluster.note("Redis lost its data", found, strikes=strikes)
    assert overlap <= TTL_S / 3 + LEASE_MARGIN_S


async def test_workers_take_turns_batch_by_batch(scene: Scene, tmp_path: Path) -> None:
    """Three with a model each on one GPU: never two batches at once, and each has about as many turns."""
    cluster = sharing(scene, tmp_path, "batch")
    await cluster.open(workers=3)
    await wait_until(
        lambda: all(worker.logged("engine ready") for worker in scene.workers), "all are ready", timeout_s=30
    )
    async with cluster.load() as found:
        await answered(found, scene.times(200, 2_000))
    turns = Counter(each.process for each in stretches(tmp_path, by_batch=True))
    overlap = cluster.note("turns by the batch", found, turns=turns.total(), fewest_turns=min(turns.values()))
    assert overlap == 0
    assert len(turns) == 3
    assert min(turns.values()) >= turns.total() / 6


@pytest.mark.long
async def test_a_turn_is_lost_with_its_engine(scene: Scene, tmp_path: Path) -> None:
    """An engine that hangs while it has the turn is killed by its worker, which renews until then; the others go on."""
    cluster = sharing(scene, tmp_path, "batch")
    workers = await cluster.open()
    await wait_until(lambda: all(worker.logged("engine ready") for worker in workers), "all are ready", timeout_s=30)
    took = []
    async with cluster.load() as found:
        for _ in range(scene.times(1, 5)):
            await answered(found)
            engine = await cluster.engine_stopped_amid_its_turn(workers)
            began = time.monotonic()
            await wait_until(lambda gone=engine: not gone.is_running(), "it is killed", timeout_s=10)  # type: ignore[misc]
            took.append(time.monotonic() - began)
            await answered(found)
    overlap = cluster.note("engine stopped amid its turn", found, stops=len(took), killed_s=round(max(took), 2))
    assert overlap == 0
    assert max(took) <= 2 * HANG_S + scene.margin_s
