"""Jobs under every fault: each job that was answered with 202 is done once, unless Redis has lost it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import httpx
import pytest

from redbatch.up.local_redis import LocalRedis
from shared import dead_letters
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.chaos.history import OK, Call
from tests.chaos.job_load import JOB_LOST, JobHistory, submit_jobs
from tests.chaos.scenario import Scenario, all_correct, on_shards
from tests.chaos.test_inputs import POISON, SLOW, EngineKiller
from tests.chaos.test_network import clear_fault, inject_fault, start_proxied_gateway
from tests.chaos.test_redis import DOWN_S, FSYNC, NO_RECLAIM_MS, destroy_group, log_size, stall
from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes
from tests.proxy import FaultProxy
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.leaves_uploads]

LOG_S = 2.0
"""Length of the end of the append-only file that is cut off, as by a power failure."""

RESULT_TTL_S = 5
"""Retention of results where memory is short."""


def urls_of(scenario: Scenario) -> list[str]:
    """Returns the URLs of the gateways."""
    return [each.url for each in scenario.gateways]


async def wait_for_jobs(history: JobHistory, more: int = 12) -> None:
    """Waits until this number of further jobs has ended."""
    before = len(history.calls)
    await wait_until(lambda: len(history.calls) >= before + more, "jobs are done", timeout_s=60)


async def judge(scenario: Scenario, fault: str, history: JobHistory, **figures: object) -> None:
    """Asserts that all jobs are done, with one job for each idempotency key, and that each shard had some."""
    verdict = scenario.judge(fault, history.calls, **figures)
    assert all_correct(verdict)
    done = [int(await raw.xlen(scenario.cluster.keys.results)) for raw in scenario.shards]
    assert (sum(done), min(done) > 0) == (len(history.calls), True)


@pytest.mark.long
@pytest.mark.starts_first
@on_shards
async def test_jobs_survive_the_death_of_their_worker(scenario: Scenario) -> None:
    """F1: jobs survive the death of their worker, even between a result and its storage."""
    await scenario.start(workers=3)
    kills = scenario.repeats(3, 40)
    async with submit_jobs(urls_of(scenario)) as history:
        await wait_for_jobs(history)
        for _ in range(kills):
            victim, name = await scenario.stop_busy_worker()
            scenario.workers.remove(victim)
            victim.kill()
            await scenario.wait_until_taken_over(name)
            await scenario.start_worker()
    await judge(scenario, "F1 jobs: worker killed", history, kills=kills)


@pytest.mark.leaves_dead_letters
async def test_inputs_of_jobs_that_kill_the_engine_fail_alone(scenario: Scenario, queue: QueueConnections) -> None:
    """F4: a poisonous input inside an entry fails alone: its neighbours get vectors, and the job names the input."""
    await scenario.start(gateways=1, workers=2, model=SLOW)
    url, stop, size = scenario.gateways[0].url, asyncio.Event(), 10
    inputs = [[f"{job} {i}" for i in range(size)] for job in range(scenario.repeats(1, 4))]
    for job, texts in enumerate(inputs):
        texts[job + 2] = f"{POISON} {job}"
    killer = EngineKiller(scenario)
    killing, calls = asyncio.create_task(killer.run(stop)), list[Call]()

    async def run_job(client: httpx.AsyncClient, job: int, texts: list[str]) -> None:
        began = time.monotonic()
        accepted = (await client.post(f"{url}/jobs", json={"texts": texts})).json()
        while (found := (await client.get(f"{url}{accepted['status_url']}?wait=10")).json())["status"] in (
            "queued",
            "running",
        ):
            pass
        page = (await client.get(f"{url}{accepted['result_url']}")).json()
        vectors = [None if each is None else vector_bytes(each) for each in page["embeddings"]]
        expected = [None if each.startswith(POISON) else null_vector(each) for each in texts]
        named = [(each["index"], each["code"]) for each in found["errors"]]
        right = (vectors, named) == (expected, [(job + 2, "input_failed")])
        calls.append(Call(texts[0], 120.0, began, time.monotonic(), OK if right else f"{found}"))

    try:
        async with plain_http.client(timeout=70) as client:
            await asyncio.gather(*(run_job(client, job, texts) for job, texts in enumerate(inputs)))
    finally:
        stop.set()
        await killing
    letters = await dead_letters.read(queue.connection("look"), queue.keys, 100)
    found = {"poison": len(inputs), "kills": killer.kills.total(), "dead_letters": len(letters)}
    verdict = scenario.judge("F4 jobs: inputs kill the engine", calls, **found)
    assert all_correct(verdict)
    assert len(letters) == len(inputs)


@pytest.mark.long
async def test_jobs_survive_the_death_of_a_gateway(scenario: Scenario) -> None:
    """F5: a client that lost the answer repeats the request with the same key at another gateway: there is one job."""
    await scenario.start(gateways=1)
    kills, urls = scenario.repeats(2, 15), urls_of(scenario)
    async with submit_jobs(urls) as history:
        await wait_for_jobs(history)
        for _ in range(kills):
            victim = await scenario.cluster.start_gateway()
            await asyncio.sleep(0.5)
            urls.append(victim.url)
            await wait_for_jobs(history)
            victim.program.kill()
            await asyncio.sleep(0.2)
            urls.remove(victim.url)
    await judge(scenario, "F5 jobs: gateway killed", history, kills=kills, refused=history.refusals)


@pytest.mark.long
async def test_the_reply_to_a_job_is_lost(scenario: Scenario, proxy: FaultProxy) -> None:
    """F7: if a job is created and the reply to the gateway is lost, a retry with the same key creates no second job."""
    await scenario.start(gateways=1)
    await start_proxied_gateway(scenario, proxy)
    async with submit_jobs(urls_of(scenario)) as history:
        injected = inject_fault(proxy, scenario, "upload", 0.2)
        await asyncio.sleep(scenario.repeats(2, 20))
        await wait_until(lambda: injected.total() >= 10, "enough faults were injected", timeout_s=60)
        clear_fault(proxy)
    await judge(scenario, "F7 jobs: reply lost", history, faults=injected.total(), refused=history.refusals)


@pytest.mark.parametrize(
    "own_redis",
    [pytest.param(FSYNC[how], id=how, marks=() if how == "everysec" else pytest.mark.long) for how in FSYNC],
    indirect=True,
)
@on_shards
async def test_jobs_when_redis_is_killed(own_scenario: Scenario, own_servers: list[Server]) -> None:
    """F10: with an append-only file no job is lost; without one, accepted jobs are lost and clients get a 404.

    Of two Redis, one is killed, then both at once, and so on.
    """
    scenario = own_scenario
    await scenario.start()
    kills = scenario.repeats(2, 8)
    async with submit_jobs(urls_of(scenario)) as history:
        for number in range(kills):
            await wait_for_jobs(history)
            killed = own_servers[: 1 + number % len(own_servers)]
            for each in killed:
                os.kill(each.pid, signal.SIGKILL)
            await asyncio.sleep(DOWN_S)
            await asyncio.gather(*(asyncio.to_thread(each.start) for each in killed))
        await wait_for_jobs(history)
    how = next(each for each in FSYNC if FSYNC[each] == own_servers[0].options)
    if how == "none":
        verdict = scenario.judge(f"F10 jobs: Redis killed, {how}", history.calls, kills=kills)
        assert set(verdict.others) == {JOB_LOST}
    else:
        await judge(scenario, f"F10 jobs: Redis killed, {how}", history, kills=kills)


@pytest.mark.long
@pytest.mark.parametrize("own_redis", [FSYNC["always"]], ids=["always"], indirect=True)
async def test_jobs_when_redis_comes_back_without_its_last_seconds(
    own_scenario: Scenario, own_redis: LocalRedis
) -> None:
    """F10: if the append-only file ends 2 s before the kill, only jobs of these 2 s are lost, which a 404 reports."""
    scenario, window_s = own_scenario, 0.0
    await scenario.start()
    async with submit_jobs(urls_of(scenario)) as history:
        for _ in range(scenario.repeats(1, 6)):
            await wait_for_jobs(history)
            cut_at, sizes = time.monotonic(), log_size(own_redis)
            await asyncio.sleep(LOG_S)
            os.kill(own_redis.pid, signal.SIGKILL)
            killed_at, before = time.monotonic(), len(history.lost)
            await asyncio.sleep(DOWN_S)
            for path, size in sizes.items():
                os.truncate(path, size)
            await asyncio.to_thread(own_redis.start)
            await wait_for_jobs(history)
            lost = history.lost[before:]
            window_s = max([window_s, *(killed_at - each for each in lost)])
            assert all(each >= cut_at for each in lost)
    found = {"loss_window_s": round(window_s, 2)}
    verdict = scenario.judge("F10 jobs: the last 2 s of the log cut off", history.calls, **found)
    assert set(verdict.others) == {JOB_LOST}, "jobs in the cut-off part are lost"


async def delete_lanes(scenario: Scenario) -> None:
    """Deletes the streams."""
    await scenario.raw.delete(*scenario.cluster.keys.lanes)


DATA_LOSSES = {"group destroyed": destroy_group, "stream deleted": delete_lanes}


@pytest.mark.parametrize("loss", [pytest.param(each, marks=pytest.mark.long) for each in DATA_LOSSES])
async def test_jobs_when_the_queue_is_deleted(own_scenario: Scenario, loss: str) -> None:
    """F11: jobs survive the loss of their lanes: their inputs are stored separately and are added again."""
    scenario = own_scenario
    await scenario.start(reclaim_idle_ms=NO_RECLAIM_MS)
    faults = scenario.repeats(2, 10)
    async with submit_jobs(urls_of(scenario)) as history:
        for _ in range(faults):
            await wait_for_jobs(history)
            await DATA_LOSSES[loss](scenario)
    await judge(scenario, f"F11 jobs: {loss}", history, faults=faults)


@pytest.mark.long
async def test_jobs_when_all_data_is_deleted(own_scenario: Scenario) -> None:
    """F11: after FLUSHALL a 404 reports the lost jobs, and jobs that are submitted later are done."""
    scenario = own_scenario
    await scenario.start()
    async with submit_jobs(urls_of(scenario)) as history:
        for _ in range(scenario.repeats(1, 6)):
            await wait_for_jobs(history)
            await scenario.raw.flushall()
        await wait_for_jobs(history)
    verdict = scenario.judge("F11 jobs: FLUSHALL", history.calls)
    assert set(verdict.others) == {JOB_LOST}
    assert verdict.lost < verdict.calls


@pytest.mark.long
async def test_jobs_when_redis_stands_still(own_scenario: Scenario, own_redis: LocalRedis) -> None:
    """F12: no job is lost when Redis is stopped for 5 s."""
    scenario = own_scenario
    await scenario.start()
    async with submit_jobs(urls_of(scenario)) as history:
        for _ in range(scenario.repeats(1, 4)):
            await wait_for_jobs(history)
            await stall(own_redis)
        await wait_for_jobs(history)
    stolen = await scenario.worker_metric("redbatch_reclaimed_total")
    await judge(scenario, "F12 jobs: Redis stands still for 5 s", history, stolen=int(stolen))


@on_shards
async def test_jobs_when_all_connections_are_killed(scenario: Scenario) -> None:
    """F13: no job is lost when all connections are killed several times a second."""
    await scenario.start()
    rounds, killed = scenario.repeats(8, 80), 0
    async with submit_jobs(urls_of(scenario)) as history:
        for _ in range(rounds):
            await scenario.sleep_randomly(0.1, 0.4)
            for raw in scenario.shards:
                killed += int(await raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    await judge(scenario, "F13 jobs: all connections killed", history, killed=killed, refused=history.refusals)


@pytest.mark.long
async def test_jobs_when_memory_is_full(own_scenario: Scenario) -> None:
    """F14: jobs that do not fit are refused before Redis is full, and accepted when results have expired."""
    scenario = own_scenario
    scenario.gateways.append(await scenario.cluster.start_gateway(job_ttl_s=RESULT_TTL_S))
    await asyncio.gather(*(scenario.start_worker() for _ in range(2)))
    await scenario.wait_until_worker_seen()
    memory: Any = await scenario.raw.info("memory")
    max_memory = int(memory["used_memory"]) + 12 * 2**20
    await scenario.raw.config_set("maxmemory", max_memory)
    peak, until = 0, time.monotonic() + scenario.repeats(20, 60)
    async with submit_jobs(urls_of(scenario), clients=40, pad=" x" * 1_000) as history:
        while time.monotonic() < until:
            peak = max(peak, int((await scenario.raw.info("memory"))["used_memory"]))
            await asyncio.sleep(0.02)
    lines = "".join(each.output for each in (*scenario.workers, scenario.gateways[0].program))
    full = {"refused": history.refusals, "peak_of_maxmemory": round(peak / max_memory, 2)}
    verdict = scenario.judge("F14 jobs: memory fills up", history.calls, **full)
    assert all_correct(verdict)
    assert history.refusals > 0
    assert "OOM" not in lines
    assert peak < max_memory
