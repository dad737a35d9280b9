"""A Redis that dies, forgets, stands still, is full, or takes no more connections."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from redbatch.local_redis import LocalRedis
from shared.keys import GROUP
from tests import plain_http
from tests.chaos.history import OK, Call
from tests.chaos.scenario import Scene, whole
from tests.integration.gateway.house import Gateway, error_of, lines_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEAL_S = 5.0
REFUSED_MS = 50.0
NEVER_MS = 60_000
STALL_S = 5.0
LONG_GRACE = {"REDBATCH_REDIS_GRACE_S": "10"}
"""With the default of 5 s, whoever comes at the end of a stall is refused."""

LONG = "simulated:base_ms=8000,item_ms=0"
SOON_MS = 300
DOWN_S = 0.5
FSYNC = {"none": [], "everysec": ["--appendonly", "yes"], "always": ["--appendonly", "yes", "--appendfsync", "always"]}


def log_size(server: LocalRedis) -> dict[Path, int]:
    """Returns the files of the append-only log that grow, with their sizes."""
    assert server.directory is not None
    files = [*server.directory.glob("appendonly.aof"), *server.directory.glob("appendonlydir/*.incr.aof")]
    return {path: path.stat().st_size for path in files}


async def healed(calls: list[Call], since: float) -> float:
    """Returns how long after a moment the first call that began after it was answered."""

    def answered() -> list[float]:
        return [call.ended - since for call in calls if call.began >= since and call.outcome == OK]

    await wait_until(lambda: bool(answered()), "calls are answered again", timeout_s=20)
    return min(answered())


@pytest.mark.parametrize(
    "own_redis",
    [pytest.param(FSYNC[how], id=how, marks=() if how == "everysec" else pytest.mark.long) for how in FSYNC],
    indirect=True,
)
async def test_redis_is_killed_and_started_again(
    own_scene: Scene, own_redis: LocalRedis, request: pytest.FixtureRequest
) -> None:
    """F10: with what its log has kept, all of it or none, each open call is answered by its deadline."""
    scene = own_scene
    await scene.open()
    kills, waiting, heals = scene.times(2, 10), 0, []
    async with scene.load() as calls:
        for _ in range(kills):
            await scene.pause(0.5, 1.0)
            waiting += sum([int(await scene.raw.xlen(lane)) for lane in scene.house.keys.lanes])
            os.kill(own_redis.pid, signal.SIGKILL)
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(own_redis.start)
            heals.append(await healed(calls, time.monotonic()))
    found = {"kills": kills, "entries_at_kill": waiting, "healed_s": round(max(heals), 2)}
    verdict = scene.judge(f"F10 Redis killed, {request.node.callspec.id}", calls, **found)
    assert waiting > 0
    assert whole(verdict)


@pytest.mark.long
@pytest.mark.parametrize("own_redis", [FSYNC["always"]], ids=["always"], indirect=True)
async def test_redis_comes_back_without_its_last_seconds(own_scene: Scene, own_redis: LocalRedis) -> None:
    """F10: its log ends two seconds before the kill, as after a loss of power. What is lost is submitted again."""
    scene = own_scene
    await scene.open()
    cut = 0
    async with scene.load() as calls:
        for _ in range(scene.times(1, 8)):
            sizes = log_size(own_redis)
            await asyncio.sleep(2.0)
            os.kill(own_redis.pid, signal.SIGKILL)
            await asyncio.sleep(DOWN_S)
            for path, size in sizes.items():
                cut += path.stat().st_size - size
                os.truncate(path, size)
            await asyncio.to_thread(own_redis.start)
            await healed(calls, time.monotonic())
    verdict = scene.judge("F10 Redis killed, the last 2 s of its log cut off", calls, cut_bytes=cut)
    assert cut > 1_000
    assert whole(verdict)


Harm = Callable[[Scene], Awaitable[object]]


async def destroy_group(scene: Scene) -> None:
    """Takes the consumer group away, with all that is pending in it."""
    for lane in scene.house.keys.lanes:
        await scene.raw.xgroup_destroy(lane, GROUP)


HARMS: dict[str, Harm] = {
    "FLUSHALL": lambda scene: scene.raw.flushall(),
    "group destroyed": destroy_group,
    "stream deleted": lambda scene: scene.raw.delete(*scene.house.keys.lanes),
}


@pytest.mark.parametrize(
    "harm", [pytest.param(harm, marks=() if harm == "FLUSHALL" else pytest.mark.long) for harm in HARMS]
)
async def test_data_is_taken_away(own_scene: Scene, harm: str) -> None:
    """F11: everything, the group, or the streams. It heals by itself, soon, and without a flood in the logs."""
    await take_away(own_scene, harm)


async def take_away(scene: Scene, harm: str) -> None:
    """Takes data away under load, again and again. Nobody dies, so nothing need be found by its idleness."""
    await scene.open(reclaim_idle_ms=NEVER_MS)
    strikes, struck, heals = scene.times(2, 12), 0, []
    began = time.monotonic()
    async with scene.load() as calls:
        for _ in range(strikes):
            await scene.pause(2.0, 3.0)
            for lane in scene.house.keys.lanes:
                struck += int(await scene.raw.xlen(lane))
            await HARMS[harm](scene)
            heals.append(await healed(calls, time.monotonic()))
    seconds = time.monotonic() - began
    programs = [*scene.workers, *(each.program for each in scene.gateways)]
    errors = [sum(line["level"] in ("error", "warning") for line in lines_of(each)) for each in programs]
    found = {
        "entries_lost": struck,
        "healed_s": round(max(heals), 2),
        "warnings_a_second": round(max(errors) / seconds, 2),
    }
    verdict = scene.judge(f"F11 {harm}", calls, strikes=strikes, **found)
    assert struck > 0
    assert whole(verdict)
    assert max(heals) <= HEAL_S
    assert max(errors) <= seconds


@pytest.mark.long
async def test_redis_stands_still(own_scene: Scene, own_redis: LocalRedis) -> None:
    """F12: for longer than the bound after which a worker counts as dead. Nobody steals, and all are answered."""
    scene = own_scene
    scene.house.environment |= LONG_GRACE
    await scene.open()
    stalls, held = scene.times(1, 6), 0
    async with scene.load() as calls:
        for _ in range(stalls):
            await scene.pause(0.5, 1.0)
            rows = [await scene.raw.xpending(lane, GROUP) for lane in scene.house.keys.lanes]
            held += sum(row["pending"] for row in rows)
            await stall(own_redis)
            await healed(calls, time.monotonic())
    stolen = await scene.total("redbatch_reclaimed_total")
    verdict = scene.judge("F12 Redis stands still for 5 s", calls, stalls=stalls, held_entries=held, stolen=int(stolen))
    assert held > 0
    assert whole(verdict)
    assert stolen == 0


async def stall(server: LocalRedis, seconds: float = STALL_S) -> None:
    """Has a server stand still."""
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(server.pid, signal.SIGCONT)


@pytest.mark.long
async def test_an_idle_worker_does_not_steal_after_a_stall(own_scene: Scene, own_redis: LocalRedis) -> None:
    """F12: one worker runs something long, the other asks for what was left behind, and is heard before the renewal."""
    await tempt(own_scene, own_redis)


async def tempt(scene: Scene, own_redis: LocalRedis) -> None:
    """Stops Redis just after a renewal, so that the other worker's question is the first in line."""
    scene.house.environment |= LONG_GRACE
    await scene.open(model=LONG, renew_ms=1_500, reclaim_idle_ms=3_000)
    idle_ms = [0]

    async def just_renewed() -> bool:
        rows: Any = await scene.raw.xpending_range(scene.house.keys.lanes[0], GROUP, "-", "+", 1)
        if not rows:
            return False
        before, idle_ms[0] = idle_ms[0], rows[0]["time_since_delivered"]
        return before > SOON_MS > idle_ms[0]

    async with scene.load(clients=1) as calls:
        for _ in range(scene.times(1, 2)):
            await wait_until(just_renewed, "an entry is renewed", timeout_s=30)
            await stall(own_redis)
            await healed(calls, time.monotonic())
    stolen = await scene.total("redbatch_reclaimed_total")
    verdict = scene.judge("F12 the same, with an idle worker", calls, stolen=int(stolen))
    assert whole(verdict)
    assert stolen == 0


@pytest.mark.long
async def test_memory_is_full(own_scene: Scene) -> None:
    """F14: long texts come faster than they are run. They are refused before Redis is full, and then it drains."""
    scene = own_scene
    gateway = await scene.house.gateway(max_queue_tokens=10**9)
    scene.gateways.append(gateway)
    await scene.hire("simulated:base_ms=200,item_ms=10")
    await scene.seen()
    most = int((await scene.raw.info("memory"))["used_memory"]) + 12 * 2**20
    await scene.raw.config_set("maxmemory", most)
    peak, refused = 0, 0
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        answers: list[asyncio.Task[httpx.Response]] = []
        for number in range(scene.times(300, 2_000)):
            answers.append(asyncio.create_task(gateway.send(client, f"{number} " * 12_000, x_timeout_ms="60000")))
            await asyncio.sleep(0.02)
            peak = max(peak, int((await scene.raw.info("memory"))["used_memory"]))
        got = await asyncio.gather(*answers)
        for answer in got:
            if answer.status_code != httpx.codes.OK:
                refused += 1
                assert (answer.status_code, error_of(answer)["code"]) == (429, "overloaded")
        await scene.drained()
        assert (await gateway.send(client, "small")).status_code == httpx.codes.OK
    lines = "".join(each.output for each in (scene.workers[0], gateway.program))
    scene.note("F14 memory fills up", calls=len(got), refused=refused, peak_of_maxmemory=round(peak / most, 2))
    assert 0 < refused < len(got)
    assert "OOM" not in lines
    assert peak < most


async def refusal_s(gateway: Gateway, client: httpx.AsyncClient) -> float:
    """Returns how long a request takes to be refused for want of a Redis; 0 for one that is answered."""
    asked = time.monotonic()
    answer = await gateway.send(client, "a", x_timeout_ms="60000")
    took = time.monotonic() - asked
    if answer.status_code == httpx.codes.OK:
        return 0.0
    assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    return took


@pytest.mark.long
@pytest.mark.alone
async def test_connections_are_exhausted(own_scene: Scene) -> None:
    """F15: Redis takes no more of them, and the gateway's are gone: it says so at once, and serves when it can."""
    scene = own_scene
    scene.gateways.append(await scene.house.gateway(redis_grace_s=0.5))
    await scene.hire()
    await scene.seen()
    gateway, took = scene.gateways[0], []
    await scene.raw.config_set("maxclients", 1)
    killed = int(await scene.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway has no connection")
    await asyncio.sleep(1.0)
    async with plain_http.client(timeout=60) as client:
        took = [await refusal_s(gateway, client) for _ in range(50)]
        await scene.raw.config_set("maxclients", 1_000)

        async def served() -> bool:
            return await refusal_s(gateway, client) == 0.0

        await wait_until(served, "requests are served again", timeout_s=10)
    median_ms = statistics.median(took) * 1000
    found = {"connections_killed": killed, "p50_ms": round(median_ms, 1), "longest_ms": round(1e3 * max(took), 1)}
    scene.note("F15 no connections left", calls=len(took), refused=sum(each > 0 for each in took), **found)
    assert killed > 0
    assert all(took)
    assert median_ms < REFUSED_MS
