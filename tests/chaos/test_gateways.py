"""Gateways that die, clients that leave, and the restart of everything, one after the other."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from shared import delivery
from shared.messages import Heartbeat
from shared.queue import Queue
from tests import plain_http
from tests.chaos.history import OK, Call
from tests.chaos.load import load
from tests.chaos.scenario import LIVELY, Scene, metric, seconds_until, whole
from tests.integration.cluster.many import Caller, connect, raise_open_files
from tests.integration.gateway.house import Gateway
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CLIENTS = 16
WAVE = 1_000
DRAIN_S = 1.0
LEAVE_S = 3.0
TIMEOUT_S = 60.0
"""Of a `Caller`."""

MOST_IN_VAIN = 0.3
"""Share of those who left whose input was run: a worker notices within `renew_ms` that an entry it holds is gone."""

GONE_MS = 100.0


@pytest.mark.long
async def test_a_gateway_is_killed(scene: Scene) -> None:
    """F5: its own clients see a broken connection, nobody else sees anything, and what it left behind goes away."""
    await scene.open(gateways=1)
    kills, resets = scene.times(3, 20), 0
    async with scene.load() as calls:
        for _ in range(kills):
            victim = await scene.house.gateway()
            await wait_until(lambda: not victim.missing(), "it sees the workers")  # noqa: B023 - awaited at once
            async with plain_http.client(timeout=30) as client:
                sent = [
                    asyncio.create_task(victim.send(client, f"lost {i}", x_timeout_ms="3000")) for i in range(CLIENTS)
                ]
                await scene.pause(0.02, 0.06)
                victim.program.kill()
                ended = await asyncio.gather(*sent, return_exceptions=True)
            resets += sum(isinstance(each, httpx.TransportError) for each in ended)
    await scene.drained()

    async def gone() -> bool:
        return not [key async for key in scene.raw.scan_iter(match=scene.house.keys.reply("*"))]

    gone_s = await seconds_until(gone, "its replies have expired", timeout_s=20)
    verdict = scene.judge("F5 gateway killed", calls, kills=kills, resets=resets, replies_gone_s=round(gone_s, 1))
    assert resets > kills, "it had work"
    assert whole(verdict)


async def leave(callers: list[Caller], scene: Scene) -> list[Call]:
    """Has callers call, and half of them hang up after a random time; returns the calls of the others."""

    async def stay(caller: Caller) -> Call:
        began = time.monotonic()
        outcome = await caller.call()
        return Call(caller.text, TIMEOUT_S, began, time.monotonic(), outcome)

    async def hang_up(caller: Caller) -> None:
        calling = asyncio.create_task(caller.call())
        await asyncio.sleep(scene.dice.uniform(0.0, 0.5))
        calling.cancel()
        caller.writer.transport.abort()

    leaving = [asyncio.create_task(hang_up(each)) for each in callers[::2]]
    stayed = await asyncio.gather(*(stay(each) for each in callers[1::2]))
    await asyncio.gather(*leaving)
    return stayed


@pytest.mark.long
async def test_clients_leave(scene: Scene) -> None:
    """F6: ten thousand of them, at random. Whoever stays gets its own vector, and what nobody waits for is not run."""
    raise_open_files(2 * WAVE + 500)
    await scene.open(model="simulated:base_ms=20,item_ms=2")
    ports = [each.port for each in scene.gateways]
    waves, stayed = scene.times(2, 20), []
    first = await leave(await connect(ports, [f"first {i}" for i in range(100)]), scene)
    assert {each.outcome for each in first} == {OK}
    await scene.drained()
    ran = int(await scene.total("redbatch_inputs_total"))
    began = time.monotonic()
    for wave in range(waves):
        texts = [f"{wave} {i}" for i in range(WAVE)]
        stayed += await leave(await connect(ports, texts), scene)
    seconds = time.monotonic() - began
    await scene.drained()
    left = waves * WAVE - len(stayed)
    in_vain = int(await scene.total("redbatch_inputs_total")) - ran - len(stayed)
    verdict = scene.judge("F6 clients leave", stayed, left=left, ran_in_vain=in_vain, seconds=round(seconds, 1))
    assert whole(verdict)
    assert in_vain <= MOST_IN_VAIN * left

    held: dict[str, Any] = {}

    async def nothing() -> bool:
        held["twice connected"] = await twice_connected(scene)
        held["in flight"] = [await metric(each.program, "redbatch_requests_in_flight") for each in scene.gateways]
        return not held["twice connected"] and not any(held["in flight"])

    await wait_until(nothing, lambda: f"the gateways hold nothing of them: {held}")


@pytest.mark.long
@pytest.mark.alone
async def test_unread_entries_go_with_their_clients(scene: Scene, queue: Queue) -> None:
    """F6: nobody reads the queue while clients leave at random. How long after each does its entry go?"""
    raise_open_files(2 * WAVE + 500)
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
    await delivery.heartbeat(queue.link("ghost"), queue.keys, beat, 600_000)
    await scene.open(workers=0)
    await scene.seen()
    waves, lags = scene.times(1, 10), []
    for wave in range(waves):
        callers = await connect([each.port for each in scene.gateways], [f"{wave} {i}" for i in range(WAVE)])
        calling = [asyncio.create_task(caller.call()) for caller in callers]

        async def all_there() -> bool:
            return int(await scene.raw.xlen(queue.keys.lanes[0])) == WAVE

        await wait_until(all_there, "all requests are in the queue", timeout_s=20)
        lags += await watch_them_leave(scene, callers, calling)
    lags.sort()
    p50_ms, p99_ms = (1e3 * lags[int(share * (len(lags) - 1))] for share in (0.5, 0.99))
    found = {
        "left": len(lags),
        "gone_p50_ms": round(p50_ms),
        "gone_p99_ms": round(p99_ms),
        "max_ms": round(1e3 * lags[-1]),
    }
    scene.note("F6 unread entries of clients that leave", **found)
    assert len(lags) == waves * WAVE
    assert p99_ms <= GONE_MS


async def watch_them_leave(scene: Scene, callers: list[Caller], calling: list[asyncio.Task[str]]) -> list[float]:
    """Has callers hang up over LEAVE_S, and returns how long after each one more entry was gone."""
    began, left, gone = time.monotonic(), list[float](), list[float]()
    at = sorted(scene.dice.uniform(0.0, LEAVE_S) for _ in callers)
    while len(gone) < len(callers):
        now = time.monotonic() - began
        while len(left) < len(callers) and at[len(left)] <= now:
            calling[len(left)].cancel()
            callers[len(left)].writer.transport.abort()
            left.append(time.monotonic())
        there = int(await scene.raw.xlen(scene.house.keys.lanes[0]))
        gone += [time.monotonic()] * (len(callers) - there - len(gone))
        assert now < LEAVE_S + 20, "they go"
        await asyncio.sleep(0.001)
    return [went - hung_up for went, hung_up in zip(gone, left, strict=True)]


async def twice_connected(scene: Scene) -> list[str]:
    """Returns the names of the gateways' connections at Redis of which there is more than one: each has one purpose."""
    rows: Any = await scene.raw.client_list()
    names = Counter(row["name"] for row in rows if row["name"].startswith("gateway:"))
    assert names, "they are connected"
    return [name for name, number in names.items() if number > 1]


@pytest.mark.long
async def test_everything_is_restarted(scene: Scene) -> None:
    """F19: each gateway and each worker gets a successor and is told to end, under load. Not one call fails."""
    settings = LIVELY | {"drain_delay_s": DRAIN_S}
    scene.gateways = [await scene.house.gateway(**settings) for _ in range(2)]
    for _ in range(2):
        await scene.hire()
    await scene.seen()
    in_service = [each.url for each in scene.gateways]
    ended: list[int] = []
    rounds = scene.times(1, 8)
    async with load(in_service, CLIENTS) as calls:
        for _ in range(rounds):
            ended += [await replaced(scene, in_service, old, settings) for old in list(scene.gateways)]
            for worker in list(scene.workers):
                await scene.hire()
                scene.workers.remove(worker)
                ended.append(await worker.stop(timeout_s=30))
    verdict = scene.judge("F19 everything restarted in turn", calls, restarts=len(ended))
    assert ended == [0] * 4 * rounds
    assert whole(verdict)
    assert verdict.calls > 100 * rounds


async def replaced(scene: Scene, in_service: list[str], old: Gateway, settings: dict[str, Any]) -> int:
    """Starts a gateway in place of another, which goes out of service and is told to end; returns its exit code."""
    new = await scene.house.gateway(**settings)
    await wait_until(lambda: not new.missing(), "the new gateway sees the workers")
    in_service[in_service.index(old.url)] = new.url
    scene.gateways.remove(old)
    scene.gateways.append(new)
    return await old.program.stop(timeout_s=30)
