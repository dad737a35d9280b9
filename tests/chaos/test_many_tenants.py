"""More tenants than a queue keeps account of, at a gateway without API keys (F21)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing

import psutil
import pytest

from tests.chaos.attack import MAX_P99_MS, measure_growth, memory_of, memory_of_redis, p99_of, probe_livez
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import HOST, read_answer
from tests.servers import Server

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

FEW, KEPT, MANY = 10, 4_200, 5_000
"""A queue keeps account of 4,096 tenants: those from KEPT to MANY have no account."""

REQUESTS = MANY - KEPT
MAX_RATIO = 2.0
"""Of the CPU time of a request: of the gateway and of Redis, where each of these tenants cost 10 ms."""

MAX_GROWTH_MB = 5.0
"""Of the gateway and of Redis, in which each account would take 0.1 kB."""

BODY = b'{"text": "a text"}'
FIELDS = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
REQUEST = b"POST /embed HTTP/1.1\r\nX-Tenant: %b\r\n" + FIELDS + b"\r\n" + BODY


async def send_as(gateway: GatewayProcess, tenants: Iterable[str], clients: int = 1) -> Counter[str]:
    """Sends a request as each of these tenants, by a number of clients at once; returns the statuses."""
    statuses, names = Counter[str](), iter(tenants)

    async def send(names: Iterator[str]) -> None:
        reader, writer = await asyncio.open_connection(HOST, gateway.port)
        with closing(writer):
            for name in names:
                writer.write(REQUEST % name.encode())
                statuses[(await read_answer(reader))[9:12].decode()] += 1

    await asyncio.gather(*(send(names) for _ in range(clients)))
    return statuses


def tenants(begin: int, end: int) -> list[str]:
    """Returns names of tenants."""
    return [f"tenant-{number}" for number in range(begin, end)]


@pytest.mark.leaves_anything
async def test_more_tenants_than_accounts(own_scenario: Scenario, own_redis: Server) -> None:
    """F21: a request of a tenant beyond the accounts costs about as much as one of ten tenants, and delays no other.

    The cost is the CPU time of the gateway and of Redis, which other work on the machine hardly changes.
    """
    scenario = own_scenario
    gateway = await scenario.cluster.start_gateway()
    scenario.gateways.append(gateway)
    await scenario.start_worker("null")
    await scenario.wait_until_worker_seen()
    processes = [psutil.Process(pid) for pid in (gateway.program.pid, own_redis.pid)]

    async def cost_ms(names: Iterable[str]) -> float:
        """Returns the CPU time of a request."""
        before = sum(sum(each.cpu_times()[:2]) for each in processes)
        assert await send_as(gateway, names) == {"200": REQUESTS}
        return 1e3 * (sum(sum(each.cpu_times()[:2]) for each in processes) - before) / REQUESTS

    few_ms = await cost_ms(tenants(0, FEW) * (REQUESTS // FEW))
    assert await send_as(gateway, tenants(FEW, KEPT), clients=16) == {"200": KEPT - FEW}
    many_ms = await cost_ms(tenants(KEPT, MANY))
    async with scenario.load(clients=4) as calls, probe_livez(gateway) as latencies_s:
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        async with measure_growth(memory_of(processes[0]), memory_of_redis(scenario.raw)) as growths_mb:
            assert await send_as(gateway, tenants(KEPT, MANY)) == {"200": REQUESTS}
    ratio, p99_ms = many_ms / few_ms, p99_of(latencies_s)
    costs = {f"cpu_of_{FEW}_tenants_ms": round(few_ms, 2), f"cpu_of_{MANY:,}_tenants_ms": round(many_ms, 2)}
    figures = {**costs, "ratio": round(ratio, 2), "livez_p99_ms": round(p99_ms)}
    figures |= {"growth_mb": round(growths_mb[0], 1), "redis_growth_mb": round(growths_mb[1], 1)}
    verdict = scenario.judge("F21 more tenants than accounts", calls, **figures)
    assert all_correct(verdict)
    assert ratio <= MAX_RATIO
    assert max(growths_mb) <= MAX_GROWTH_MB
    assert p99_ms <= MAX_P99_MS
