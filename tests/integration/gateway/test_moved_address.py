"""A Redis that hangs behind an address that then leads to another one, and a Redis that is only slow."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio import to_thread
from contextlib import ExitStack
from functools import partial
from typing import Self

import httpx
import pytest

from shared.process.tasks import cancel_and_wait
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    gateway_of,
    is_listening,
    null_vector,
    vector_bytes,
    worker_is_ready,
)
from tests.processes import Processes, Program
from tests.proxy import FaultProxy
from tests.servers import Server, stopped
from tests.stall_detector import StallDetector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

INTERVAL_S = 0.02
RECONNECTS = (
    "Redis answers over a new connection after a silence: all connections are opened again",
    "another Redis has taken over: all connections move to it",
)
"""The probe of the silent call notices it, or another call of which the timeout ends first."""


def has_connected_again(program: Program) -> bool:
    """Whether a process has opened all of its connections again."""
    return any(program.log_records(each) for each in RECONNECTS)


class Load:
    """A request every INTERVAL_S, each with its own text and twice the default time, for stalls of the machine."""

    def __init__(self, gateway: GatewayProcess, client: httpx.AsyncClient) -> None:
        self._gateway = gateway
        self._client = client
        self._calls: list[asyncio.Task[tuple[bool, float]]] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_error: object) -> None:
        await cancel_and_wait([self._task, *self._calls])

    async def finish(self) -> tuple[int, int, float]:
        """Waits for all answers; returns their number, that of those without the right vector, and the longest time."""
        self._task.cancel()
        answers = await asyncio.gather(*self._calls)
        return len(answers), sum(not right for right, _ in answers), max(took_s for _, took_s in answers)

    async def _run(self) -> None:
        while True:
            self._calls.append(asyncio.create_task(self._call(f"text {len(self._calls)}")))
            await asyncio.sleep(INTERVAL_S)

    async def _call(self, text: str) -> tuple[bool, float]:
        sent_at = time.monotonic()
        answer = await self._gateway.send(self._client, text, x_timeout_ms="20000")
        right = answer.status_code == 200 and vector_bytes(answer.json()["embedding"]) == null_vector(text)
        return right, time.monotonic() - sent_at


@pytest.mark.parametrize("moved_after_s", [0.0, 2.5])
async def test_no_request_fails_when_the_address_moves_and_nothing_is_reset(
    moved_after_s: float, queue_name: str, tmp_path_factory: pytest.TempPathFactory, client: httpx.AsyncClient
) -> None:
    """A lost node resets no connection; gateway and worker find out that new ones lead to another, empty Redis."""
    with Server() as old, Server() as new, ExitStack() as stack:
        async with FaultProxy(old.url) as proxy, Processes(tmp_path_factory.mktemp("moved")) as processes:
            cluster = GatewayCluster(processes, proxy.url, queue_name)
            environment = cluster.env(model="null")
            # Whether they are ready is found out in threads, because the proxy runs in this one.
            program, worker = await asyncio.gather(
                processes.start("gateway", "api", environment, lambda each: to_thread(is_listening, each)),
                processes.start("worker", "gpuworker", environment, lambda each: to_thread(worker_is_ready, each)),
            )
            gateway = gateway_of(program)

            async def sees_worker() -> bool:
                return await to_thread(gateway.missing) == []

            await wait_until(sees_worker, "the gateway sees the worker")
            stalls = stack.enter_context(StallDetector())
            async with Load(gateway, client) as load:
                await asyncio.sleep(1.0)
                stack.enter_context(stopped(old))
                await asyncio.sleep(moved_after_s)
                proxy.lead_to(new.url)
                moved_at = time.monotonic()
                for each in (gateway.program, worker):
                    await wait_until(partial(has_connected_again, each), "it connects again", timeout_s=20)
                await wait_until(lambda: time.monotonic() - moved_at > 5, "the load goes on for 5 s", timeout_s=10)
                calls, failed, longest_s = await load.finish()
    sys.stdout.write(f"{calls} requests, {failed} failed, the longest answer took {longest_s:.2f} s\n")
    assert failed == 0
    assert longest_s < moved_after_s + 8 + stalls.longest_s, "less than the default timeout, on a loaded machine too"


@pytest.mark.long
async def test_a_slow_redis_loses_nothing_and_no_connection(
    isolated_cluster: GatewayCluster, own_redis: Server, client: httpx.AsyncClient
) -> None:
    """Pauses of 1.5 s are shorter than the timeout, and new connections get no answer either."""
    gateway, worker = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    await wait_until(lambda: gateway.metric("redbatch_settles_total") > 0, "it has reconciled at its start")
    settles = gateway.metric("redbatch_settles_total")
    async with Load(gateway, client) as load:
        for _ in range(4):
            await asyncio.sleep(1.0)
            with stopped(own_redis):
                await asyncio.sleep(1.5)
        calls, failed, longest_s = await load.finish()
    sys.stdout.write(f"{calls} requests, {failed} failed, the longest answer took {longest_s:.2f} s\n")
    assert failed == 0
    assert gateway.metric("redbatch_resubmitted_entries_total") == 0
    assert gateway.metric("redbatch_settles_total") == settles
    assert not has_connected_again(gateway.program)
    assert not has_connected_again(worker)
