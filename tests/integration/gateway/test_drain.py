"""A gateway leaves under load, and not one request fails."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    exchange_bytes,
    null_vector,
    vector_bytes,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

INHERIT = "import socket, sys; from api.__main__ import main; sys.exit(main({}, socket.socket(fileno=%d)))"
CLIENTS = 16


@dataclass
class Load:
    """Keep-alive clients, each with a connection of its own, that send one request after the other.

    A client goes to the first of `urls` until an answer closes its connection, then to the next: as behind a load
    balancer that heeds it.
    """

    urls: list[str]
    served: int = 0
    closed: int = 0
    wrong: list[str] = field(default_factory=list)
    on: bool = True

    async def run(self) -> None:
        """Sends until it is switched off."""
        await asyncio.gather(*(self._client(number) for number in range(CLIENTS)))

    async def _client(self, number: int) -> None:
        urls = list(self.urls)
        async with plain_http.client(timeout=20, limits=httpx.Limits(max_connections=1)) as client:
            while self.on:
                text = f"{number} {self.served}"
                try:
                    answer = await client.post(f"{urls[0]}/embed", json={"text": text})
                    good = answer.status_code == 200 and vector_bytes(answer.json()["embedding"]) == null_vector(text)
                except httpx.HTTPError as error:
                    self.wrong.append(repr(error))
                    continue
                self.served += 1
                if not good:
                    self.wrong.append(answer.text[:200])
                if answer.headers.get("connection") == "close":
                    self.closed += 1
                    urls = urls[1:] or urls


async def test_a_gateway_drains_under_load(cluster: GatewayCluster) -> None:
    """SIGTERM: /readyz is 503 at once, answers close their connections, nothing fails, and it ends with 0."""
    one, two, _ = await asyncio.gather(
        cluster.start_gateway(drain_delay_s=3), cluster.start_gateway(), cluster.start_worker()
    )
    await wait_until(lambda: one.missing() == two.missing() == [], "both gateways see the worker")
    load = Load([one.url, two.url])
    running = asyncio.create_task(load.run())
    await wait_until(lambda: load.served > 50, "the load runs")
    one.program.signal(signal.SIGTERM)
    await wait_until(lambda: one.missing() == ["draining"], "the gateway is not ready", timeout_s=1)
    assert plain_http.get(f"{one.admin}/readyz").json()["missing"] == ["draining"]
    assert one.embed({"text": "late"}).headers["connection"] == "close"
    await wait_until(lambda: load.closed >= CLIENTS, "each client has gone on to the other gateway")
    seen = load.served
    assert await one.program.wait_until_ended(10) == 0
    await wait_until(lambda: load.served > seen + 50, "the load goes on")
    load.on = False
    await running
    assert load.wrong == []


async def test_requests_in_flight_and_idle_connections_end_well(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """What was taken before SIGTERM is answered after the listener closed; idle connections close without a word."""
    model = "simulated:base_ms=1500,item_ms=0"
    gateway, _ = await asyncio.gather(cluster.start_gateway(drain_delay_s=0.1), cluster.start_worker(model))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    head = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    idle = asyncio.create_task(asyncio.to_thread(exchange_bytes, gateway.port, head))
    sent = [asyncio.create_task(gateway.send(client, f"{i}")) for i in range(8)]
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 8, "all requests are in flight")
    gateway.program.signal(signal.SIGTERM)
    answers = await asyncio.gather(*sent)
    assert [vector_bytes(each.json()["embedding"]) for each in answers] == [null_vector(f"{i}") for i in range(8)]
    assert {each.headers["connection"] for each in answers} == {"close"}, "also of those asked before"
    assert (await idle).count(b"HTTP/1.1 ") == 1
    assert await gateway.program.wait_until_ended(5) == 0


async def patient(gateway: GatewayProcess, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """Returns a request that is in flight and has a minute."""
    sent = asyncio.create_task(gateway.send(client, "a", x_timeout_ms="60000"))
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 1, "the request is in flight")
    return sent


@pytest.mark.usefixtures("fake_heartbeat")
async def test_past_the_grace_the_rest_is_told_to_go_elsewhere(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Nobody serves it: with its deadline far away, it gets a 503 and when to come again; its entry is taken back."""
    gateway = await cluster.start_gateway(drain_delay_s=0.1, drain_grace_s=1)
    sent = await patient(gateway, client)
    gateway.program.signal(signal.SIGTERM)
    answer = await sent
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert await gateway.program.wait_until_ended(5) == 0
    assert "Traceback" not in gateway.program.output


@pytest.mark.leaves_anything
@pytest.mark.usefixtures("fake_heartbeat")
async def test_a_second_signal_ends_it_at_once(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """Whatever is in flight, and however long the delay and the grace. What it leaves in the queue runs in vain."""
    gateway = await cluster.start_gateway(drain_delay_s=30, drain_grace_s=30)
    sent = await patient(gateway, client)
    gateway.program.signal(signal.SIGTERM)
    await wait_until(lambda: gateway.missing() == ["draining"], "it drains")
    gateway.program.signal(signal.SIGTERM)
    await gateway.program.wait_until_ended(3)
    await asyncio.gather(sent, return_exceptions=True)


async def test_a_gateway_leaves_a_shared_listener_under_load(cluster: GatewayCluster) -> None:
    """Two gateways accept from one socket; one leaves, and every new connection is served by the other."""
    with socket.create_server(("127.0.0.1", 0), backlog=2_048) as listen:
        env = cluster.env(drain_delay_s=0.5)
        with inheriting(listen, env) as one, inheriting(listen, env) as two:
            await cluster.start_worker()
            url = f"http://127.0.0.1:{listen.getsockname()[1]}"
            await wait_until(
                lambda: plain_http.get(f"{url}/readyz").status_code == 200, "a gateway is ready", timeout_s=10
            )
            load = Load([url])
            running = asyncio.create_task(load.run())
            await wait_until(lambda: load.served > 200, "the load runs")
            one.send_signal(signal.SIGTERM)
            await wait_until(lambda: one.poll() is not None, "the gateway has left")
            seen = load.served
            await wait_until(lambda: load.served > seen + 200, "the load goes on")
            load.on = False
            await running
            assert (load.wrong, one.returncode, two.poll()) == ([], 0, None)


@contextmanager
def inheriting(listen: socket.socket, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a gateway that accepts from a socket of ours."""
    command = [sys.executable, "-P", "-c", INHERIT % listen.fileno()]
    process = subprocess.Popen(
        command, env=os.environ | env, pass_fds=[listen.fileno()], stdout=subprocess.DEVNULL, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
