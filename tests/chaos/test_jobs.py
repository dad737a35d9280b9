"""Jobs under every fault: what was answered 202 is done, once, wherever Redis has kept it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import httpx
import pytest

from redbatch.local_redis import LocalRedis
from shared import dead_letters
from shared.queue import Queue
from tests import plain_http
from tests.chaos.history import OK, Call
from tests.chaos.job_load import GONE, Submitted, jobs
from tests.chaos.scenario import Scene, whole
from tests.chaos.test_inputs import POISON, SLOW, Executioner
from tests.chaos.test_network import end_strike, far_gateway, strike
from tests.chaos.test_redis import DOWN_S, FSYNC, NEVER_MS, destroy_group, log_size, stall
from tests.integration.gateway.house import digits, digits_of
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]

LOG_S = 2.0
"""How much of its log is cut off a Redis, as by a loss of power."""

KEPT_S = 5
"""How long results are kept where memory is short."""


def urls_of(scene: Scene) -> list[str]:
    """Returns where the gateways are."""
    return [each.url for each in scene.gateways]


async def several(submitted: Submitted, more: int = 12) -> None:
    """Waits until so many jobs more have been done."""
    before = len(submitted.calls)
    await wait_until(lambda: len(submitted.calls) >= before + more, "jobs are done", timeout_s=60)


async def judge(scene: Scene, fault: str, submitted: Submitted, **figures: object) -> None:
    """Judges the jobs: all of them done, and one job for each key."""
    verdict = scene.judge(fault, submitted.calls, **figures)
    assert whole(verdict)
    assert int(await scene.raw.xlen(scene.house.keys.results)) == len(submitted.calls)


@pytest.mark.long
@pytest.mark.longest
async def test_jobs_survive_the_death_of_their_worker(scene: Scene) -> None:
    """F1: between a result and its storage, or anywhere else."""
    await scene.open(workers=3)
    kills = scene.times(3, 40)
    async with jobs(urls_of(scene)) as submitted:
        await several(submitted)
        for _ in range(kills):
            victim, name = await scene.stop_amid_work()
            scene.workers.remove(victim)
            victim.kill()
            await scene.taken_over(name)
            await scene.hire()
    await judge(scene, "F1 jobs: worker killed", submitted, kills=kills)


@pytest.mark.buries
async def test_inputs_of_jobs_that_kill_the_engine_fail_alone(scene: Scene, queue: Queue) -> None:
    """F4: in the middle of an entry with others. Its neighbours have their vectors, and the job says which failed."""
    await scene.open(gateways=1, workers=2, model=SLOW)
    url, over, size = scene.gateways[0].url, asyncio.Event(), 10
    asked = [[f"{job} {i}" for i in range(size)] for job in range(scene.times(1, 4))]
    for job, texts in enumerate(asked):
        texts[job + 2] = f"{POISON} {job}"
    executioner = Executioner(scene)
    killing, calls = asyncio.create_task(executioner.run(over)), list[Call]()

    async def one(client: httpx.AsyncClient, job: int, texts: list[str]) -> None:
        began = time.monotonic()
        told = (await client.post(f"{url}/jobs", json={"texts": texts})).json()
        while (found := (await client.get(f"{url}{told['status_url']}?wait=10")).json())["status"] in (
            "queued",
            "running",
        ):
            pass
        page = (await client.get(f"{url}{told['result_url']}")).json()
        vectors = [None if each is None else digits(each) for each in page["embeddings"]]
        expected = [None if each.startswith(POISON) else digits_of(each) for each in texts]
        named = [(each["index"], each["code"]) for each in found["errors"]]
        right = (vectors, named) == (expected, [(job + 2, "input_failed")])
        calls.append(Call(texts[0], 120.0, began, time.monotonic(), OK if right else f"{found}"))

    try:
        async with plain_http.client(timeout=70) as client:
            await asyncio.gather(*(one(client, job, texts) for job, texts in enumerate(asked)))
    finally:
        over.set()
        await killing
    letters = await dead_letters.read(queue.link("look"), queue.keys, 100)
    found = {"poison": len(asked), "kills": executioner.kills.total(), "dead_letters": len(letters)}
    verdict = scene.judge("F4 jobs: inputs kill the engine", calls, **found)
    assert whole(verdict)
    assert len(letters) == len(asked)


@pytest.mark.long
async def test_jobs_do_not_mind_the_death_of_a_gateway(scene: Scene) -> None:
    """F5: whoever lost the answer asks another, with the same key, and there is one job."""
    await scene.open(gateways=1)
    kills, urls = scene.times(2, 15), urls_of(scene)
    async with jobs(urls) as submitted:
        await several(submitted)
        for _ in range(kills):
            victim = await scene.house.gateway()
            await asyncio.sleep(0.5)
            urls.append(victim.url)
            await several(submitted)
            victim.program.kill()
            await asyncio.sleep(0.2)
            urls.remove(victim.url)
    await judge(scene, "F5 jobs: gateway killed", submitted, kills=kills, refused=submitted.refusals)


@pytest.mark.long
async def test_the_reply_to_a_job_is_lost(scene: Scene, proxy: FaultProxy) -> None:
    """F7: it was made, and the gateway does not hear of it. One job for each key, whoever asks again."""
    await scene.open(gateways=1)
    await far_gateway(scene, proxy)
    async with jobs(urls_of(scene)) as submitted:
        struck = strike(proxy, scene, "upload", 0.2)
        await asyncio.sleep(scene.times(2, 20))
        await wait_until(lambda: struck.total() >= 10, "it has struck", timeout_s=60)
        end_strike(proxy)
    await judge(scene, "F7 jobs: reply lost", submitted, struck=struck.total(), refused=submitted.refusals)


@pytest.mark.parametrize(
    "own_redis",
    [pytest.param(FSYNC[how], id=how, marks=() if how == "everysec" else pytest.mark.long) for how in FSYNC],
    indirect=True,
)
async def test_jobs_when_redis_is_killed(
    own_scene: Scene, own_redis: LocalRedis, request: pytest.FixtureRequest
) -> None:
    """F10: with a log nothing is lost. Without one, what had been taken is, and everybody is told so."""
    scene, how = own_scene, request.node.callspec.id
    await scene.open()
    kills = scene.times(2, 8)
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(kills):
            await several(submitted)
            os.kill(own_redis.pid, signal.SIGKILL)
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(own_redis.start)
        await several(submitted)
    if how == "none":
        verdict = scene.judge(f"F10 jobs: Redis killed, {how}", submitted.calls, kills=kills)
        assert set(verdict.others) == {GONE}
    else:
        await judge(scene, f"F10 jobs: Redis killed, {how}", submitted, kills=kills)


@pytest.mark.long
@pytest.mark.parametrize("own_redis", [FSYNC["always"]], ids=["always"], indirect=True)
async def test_jobs_when_redis_comes_back_without_its_last_seconds(own_scene: Scene, own_redis: LocalRedis) -> None:
    """F10: its log ends two seconds before the kill. Lost are jobs of these two seconds, and 404 says so."""
    scene, window_s = own_scene, 0.0
    await scene.open()
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(scene.times(1, 6)):
            await several(submitted)
            cut_at, sizes = time.monotonic(), log_size(own_redis)
            await asyncio.sleep(LOG_S)
            os.kill(own_redis.pid, signal.SIGKILL)
            killed_at, before = time.monotonic(), len(submitted.lost)
            await asyncio.sleep(DOWN_S)
            for path, size in sizes.items():
                os.truncate(path, size)
            await asyncio.to_thread(own_redis.start)
            await several(submitted)
            lost = submitted.lost[before:]
            window_s = max([window_s, *(killed_at - each for each in lost)])
            assert all(each >= cut_at for each in lost)
    found = {"loss_window_s": round(window_s, 2)}
    verdict = scene.judge("F10 jobs: the last 2 s of the log cut off", submitted.calls, **found)
    assert set(verdict.others) == {GONE}, "what is cut off is lost"


async def delete_lanes(scene: Scene) -> None:
    """Takes the streams away."""
    await scene.raw.delete(*scene.house.keys.lanes)


HARMS = {"group destroyed": destroy_group, "stream deleted": delete_lanes}


@pytest.mark.parametrize("harm", [pytest.param(each, marks=pytest.mark.long) for each in HARMS])
async def test_jobs_when_the_queue_is_taken_away(own_scene: Scene, harm: str) -> None:
    """F11: what they consist of lies beside the lanes, and is added again."""
    scene = own_scene
    await scene.open(reclaim_idle_ms=NEVER_MS)
    strikes = scene.times(2, 10)
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(strikes):
            await several(submitted)
            await HARMS[harm](scene)
    await judge(scene, f"F11 jobs: {harm}", submitted, strikes=strikes)


@pytest.mark.long
async def test_jobs_when_everything_is_taken_away(own_scene: Scene) -> None:
    """F11: FLUSHALL. They are gone, 404 says so, and those that come after it are done."""
    scene = own_scene
    await scene.open()
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(scene.times(1, 6)):
            await several(submitted)
            await scene.raw.flushall()
        await several(submitted)
    verdict = scene.judge("F11 jobs: FLUSHALL", submitted.calls)
    assert set(verdict.others) == {GONE}
    assert verdict.lost < verdict.calls


@pytest.mark.long
async def test_jobs_when_redis_stands_still(own_scene: Scene, own_redis: LocalRedis) -> None:
    """F12: for five seconds."""
    scene = own_scene
    await scene.open()
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(scene.times(1, 4)):
            await several(submitted)
            await stall(own_redis)
        await several(submitted)
    stolen = await scene.total("redbatch_reclaimed_total")
    await judge(scene, "F12 jobs: Redis stands still for 5 s", submitted, stolen=int(stolen))


async def test_jobs_when_all_connections_are_killed(scene: Scene) -> None:
    """F13: several times a second."""
    await scene.open()
    rounds, killed = scene.times(8, 80), 0
    async with jobs(urls_of(scene)) as submitted:
        for _ in range(rounds):
            await scene.pause(0.1, 0.4)
            killed += int(await scene.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    await judge(scene, "F13 jobs: all connections killed", submitted, killed=killed, refused=submitted.refusals)


@pytest.mark.long
async def test_jobs_when_memory_is_full(own_scene: Scene) -> None:
    """F14: more is submitted than fits. It is refused before Redis is full, and taken when results have gone."""
    scene = own_scene
    scene.gateways.append(await scene.house.gateway(job_ttl_s=KEPT_S))
    await asyncio.gather(*(scene.hire() for _ in range(2)))
    await scene.seen()
    memory: Any = await scene.raw.info("memory")
    most = int(memory["used_memory"]) + 12 * 2**20
    await scene.raw.config_set("maxmemory", most)
    peak, until = 0, time.monotonic() + scene.times(20, 60)
    async with jobs(urls_of(scene), clients=40, pad=" x" * 1_000) as submitted:
        while time.monotonic() < until:
            peak = max(peak, int((await scene.raw.info("memory"))["used_memory"]))
            await asyncio.sleep(0.02)
    lines = "".join(each.output for each in (*scene.workers, scene.gateways[0].program))
    full = {"refused": submitted.refusals, "peak_of_maxmemory": round(peak / most, 2)}
    verdict = scene.judge("F14 jobs: memory fills up", submitted.calls, **full)
    assert whole(verdict)
    assert submitted.refusals > 0
    assert "OOM" not in lines
    assert peak < most
