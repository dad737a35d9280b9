"""Gateways that are killed, clients that disconnect, and a rolling restart of all processes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from shared import consumer
from shared.messages import Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.chaos.history import OK, Call
from tests.chaos.load import load
from tests.chaos.scenario import (
    FAST_WORKER,
    Scenario,
    all_correct,
    metric,
    on_shards,
    on_shards_and_operations,
    seconds_until,
)
from tests.integration.cluster.connections import ClientConnection, connect, raise_open_files
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CLIENTS = 16
WAVE = 1_000
DRAIN_S = 1.0
DISCONNECT_S = 3.0
TIMEOUT_S = 60.0
"""Timeout of a `Caller`."""

MAX_WASTED = 0.3
"""Maximum share of disconnected clients whose input ran: a worker notices within `renew_ms` that an entry is gone."""

MAX_REMOVAL_MS = 100.0


@pytest.mark.long
async def test_a_gateway_is_killed(scenario: Scenario) -> None:
    """F5: only the clients of the killed gateway see broken connections, and the keys that it leaves expire."""
    await scenario.start(gateways=1)
    kills, resets = scenario.repeats(3, 20), 0
    async with scenario.load() as calls:
        for _ in range(kills):
            victim = await scenario.cluster.start_gateway()
            await wait_until(lambda: not victim.missing(), "the gateway sees the workers")  # noqa: B023 - awaited at once
            async with plain_http.client(timeout=30) as client:
                sent = [
                    asyncio.create_task(victim.send(client, f"lost {i}", x_timeout_ms="3000")) for i in range(CLIENTS)
                ]
                await scenario.sleep_randomly(0.02, 0.06)
                victim.program.kill()
                ended = await asyncio.gather(*sent, return_exceptions=True)
            resets += sum(isinstance(each, httpx.TransportError) for each in ended)
    await scenario.wait_until_drained()

    async def gone() -> bool:
        return not [key async for key in scenario.raw.scan_iter(match=scenario.cluster.keys.reply("*"))]

    gone_s = await seconds_until(gone, "the replies to it have expired", timeout_s=20)
    verdict = scenario.judge("F5 gateway killed", calls, kills=kills, resets=resets, replies_gone_s=round(gone_s, 1))
    assert resets > kills, "the killed gateways had no requests"
    assert all_correct(verdict)


async def disconnect_half(callers: list[ClientConnection], scenario: Scenario) -> list[Call]:
    """Starts all callers, disconnects half of them within a random 0.5 s; returns the calls of the others."""

    async def stay(caller: ClientConnection) -> Call:
        began = time.monotonic()
        outcome = await caller.call()
        return Call(caller.text, TIMEOUT_S, began, time.monotonic(), outcome)

    async def disconnect(caller: ClientConnection) -> None:
        calling = asyncio.create_task(caller.call())
        await asyncio.sleep(scenario.rng.uniform(0.0, 0.5))
        calling.cancel()
        caller.writer.transport.abort()

    leaving = [asyncio.create_task(disconnect(each)) for each in callers[::2]]
    remaining = await asyncio.gather(*(stay(each) for each in callers[1::2]))
    await asyncio.gather(*leaving)
    return remaining


@pytest.mark.long
@on_shards_and_operations
async def test_clients_leave(scenario: Scenario) -> None:
    """F6: when 10,000 clients disconnect at random times, the others get their vectors and few abandoned inputs run."""
    raise_open_files(2 * WAVE + 500)
    await scenario.start(model="simulated:base_ms=20,item_ms=2")
    ports = [each.port for each in scenario.gateways]
    waves, remaining = scenario.repeats(2, 20), []
    first = await disconnect_half(
        await connect(ports, [f"first {i}" for i in range(100)], scenario.operation), scenario
    )
    assert {each.outcome for each in first} == {OK}
    await scenario.wait_until_drained()
    ran = int(await scenario.num_runs())
    began = time.monotonic()
    for wave in range(waves):
        texts = [f"{wave} {i}" for i in range(WAVE)]
        remaining += await disconnect_half(await connect(ports, texts, scenario.operation), scenario)
    seconds = time.monotonic() - began
    await scenario.wait_until_drained()
    left = waves * WAVE - len(remaining)
    wasted = int(await scenario.num_runs()) - ran - len(remaining)
    verdict = scenario.judge("F6 clients leave", remaining, left=left, wasted_runs=wasted, seconds=round(seconds, 1))
    assert all_correct(verdict)
    assert wasted <= MAX_WASTED * left

    held: dict[str, Any] = {}

    async def all_released() -> bool:
        held["duplicate connections"] = await duplicate_connections(scenario)
        held["in flight"] = [await metric(each.program, "redbatch_requests_in_flight") for each in scenario.gateways]
        return not held["duplicate connections"] and not any(held["in flight"])

    await wait_until(all_released, lambda: f"the gateways have released everything: {held}")


@pytest.mark.long
@pytest.mark.exclusive
@on_shards
async def test_unread_entries_go_with_their_clients(scenario: Scenario) -> None:
    """F6: the unread entry of a client that disconnects is deleted within MAX_REMOVAL_MS (p99).

    An entry that requests share is deleted with the last of their clients: here none is shared.
    """
    raise_open_files(2 * WAVE + 500)
    scenario.cluster.environment["REDBATCH_REQUESTS_PER_ENTRY"] = "1"
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
    for url in scenario.cluster.redis_urls:
        queue = QueueConnections(QueueSettings(redis_url=url), scenario.cluster.queue, "test")
        await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 600_000)
        await queue.close()
    await scenario.start(workers=0)
    await scenario.wait_until_worker_seen()
    waves, lags = scenario.repeats(1, 10), []
    for wave in range(waves):
        callers = await connect([each.port for each in scenario.gateways], [f"{wave} {i}" for i in range(WAVE)])
        calling = [asyncio.create_task(caller.call()) for caller in callers]

        async def all_there() -> bool:
            return await scenario.num_entries() == WAVE

        await wait_until(all_there, "all requests are in the queue", timeout_s=20)
        lags += await measure_removal(scenario, callers, calling)
    lags.sort()
    p50_ms, p99_ms = (1e3 * lags[int(share * (len(lags) - 1))] for share in (0.5, 0.99))
    found = {
        "left": len(lags),
        "gone_p50_ms": round(p50_ms),
        "gone_p99_ms": round(p99_ms),
        "max_ms": round(1e3 * lags[-1]),
    }
    scenario.note("F6 unread entries of clients that leave", **found)
    assert len(lags) == waves * WAVE
    assert p99_ms <= MAX_REMOVAL_MS


async def measure_removal(
    scenario: Scenario, callers: list[ClientConnection], calling: list[asyncio.Task[str]]
) -> list[float]:
    """Disconnects callers over DISCONNECT_S; returns the time (s) from each disconnection to the loss of an entry."""
    began, left, gone = time.monotonic(), list[float](), list[float]()
    at = sorted(scenario.rng.uniform(0.0, DISCONNECT_S) for _ in callers)
    while len(gone) < len(callers):
        now = time.monotonic() - began
        while len(left) < len(callers) and at[len(left)] <= now:
            calling[len(left)].cancel()
            callers[len(left)].writer.transport.abort()
            left.append(time.monotonic())
        there = await scenario.num_entries()
        gone += [time.monotonic()] * (len(callers) - there - len(gone))
        assert now < DISCONNECT_S + 20, "the entries were not deleted"
        await asyncio.sleep(0.001)
    return [went - hung_up for went, hung_up in zip(gone, left, strict=True)]


async def duplicate_connections(scenario: Scenario) -> list[str]:
    """Returns names of gateway connections to Redis that exist more than once: each connection has one purpose."""
    duplicate: list[str] = []
    for raw in scenario.shards:
        rows: Any = await raw.client_list()
        names = Counter(row["name"] for row in rows if row["name"].startswith("gateway:"))
        assert names, "no gateway is connected"
        duplicate += [name for name, number in names.items() if number > 1]
    return duplicate


@pytest.mark.long
async def test_everything_is_restarted(scenario: Scenario) -> None:
    """F19: no call fails while each gateway and each worker is replaced and ended under load."""
    settings = FAST_WORKER | {"drain_delay_s": DRAIN_S}
    scenario.gateways = [await scenario.cluster.start_gateway(**settings) for _ in range(2)]
    for _ in range(2):
        await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    in_service = [each.url for each in scenario.gateways]
    ended: list[int] = []
    rounds = scenario.repeats(1, 8)
    async with load(in_service, CLIENTS) as calls:
        for _ in range(rounds):
            ended += [await replace_gateway(scenario, in_service, old, settings) for old in list(scenario.gateways)]
            for worker in list(scenario.workers):
                await scenario.start_worker()
                scenario.workers.remove(worker)
                ended.append(await worker.stop(timeout_s=30))
    verdict = scenario.judge("F19 everything restarted in turn", calls, restarts=len(ended))
    assert ended == [0] * 4 * rounds
    assert all_correct(verdict)
    assert verdict.calls > 100 * rounds


async def replace_gateway(
    scenario: Scenario, in_service: list[str], old: GatewayProcess, settings: dict[str, Any]
) -> int:
    """Starts a gateway in place of another, which leaves the service and is ended; returns its exit code."""
    new = await scenario.cluster.start_gateway(**settings)
    await wait_until(lambda: not new.missing(), "the new gateway sees the workers")
    in_service[in_service.index(old.url)] = new.url
    scenario.gateways.remove(old)
    scenario.gateways.append(new)
    return await old.program.stop(timeout_s=30)
