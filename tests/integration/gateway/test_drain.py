"""The drain of a gateway under load fails no request."""

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

RUN_ON_INHERITED_SOCKET = (
    "import socket, sys; from api.__main__ import main; sys.exit(main({}, socket.socket(fileno=%d)))"
)
CLIENTS = 16


@dataclass
class Load:
    """Clients with a keep-alive connection each, which send one request after the other.

    A client uses the first of `urls` until an answer closes its connection, then the next, as behind a load balancer
    that respects it.

    Attributes:
        served: number of answers.
        closed: number of answers that closed their connection.
        failures: errors, and answers without the vector of their text.
        running: the clients stop when it is false.
    """

    urls: list[str]
    served: int = 0
    closed: int = 0
    failures: list[str] = field(default_factory=list)
    running: bool = True

    async def run(self) -> None:
        """Sends requests while `running` is true."""
        await asyncio.gather(*(self._client(number) for number in range(CLIENTS)))

    async def _client(self, number: int) -> None:
        urls = list(self.urls)
        async with plain_http.client(timeout=20, limits=httpx.Limits(max_connections=1)) as client:
            while self.running:
                text = f"{number} {self.served}"
                try:
                    answer = await client.post(f"{urls[0]}/embed", json={"text": text})
                    correct = answer.status_code == 200 and vector_bytes(answer.json()["embedding"]) == null_vector(
                        text
                    )
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    continue
                self.served += 1
                if not correct:
                    self.failures.append(answer.text[:200])
                if answer.headers.get("connection") == "close":
                    self.closed += 1
                    urls = urls[1:] or urls


async def test_a_gateway_drains_under_load(cluster: GatewayCluster) -> None:
    """After SIGTERM, /readyz is 503 at once, answers close connections, no request fails, and the exit code is 0."""
    one, two, _ = await asyncio.gather(
        cluster.start_gateway(drain_delay_s=6), cluster.start_gateway(), cluster.start_worker()
    )
    await wait_until(lambda: one.missing() == two.missing() == [], "both gateways see the worker")
    load = Load([one.url, two.url])
    running = asyncio.create_task(load.run())
    await wait_until(lambda: load.served > 50, "the load is running")
    one.program.signal(signal.SIGTERM)
    await wait_until(lambda: one.missing() == ["draining"], "the gateway reports that it drains")  # during the delay
    assert plain_http.get(f"{one.admin}/readyz").json()["missing"] == ["draining"]
    assert one.embed({"text": "late"}).headers["connection"] == "close"
    await wait_until(lambda: load.closed >= CLIENTS, "each client uses the other gateway")
    served = load.served
    assert await one.program.wait_until_ended(30) == 0
    await wait_until(lambda: load.served > served + 50, "the load continues")
    load.running = False
    await running
    assert load.failures == []


async def test_a_drain_answers_requests_and_closes_idle_connections(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Requests from before SIGTERM are answered after the listener closed; idle connections close without an answer."""
    model = "simulated:base_ms=3000,item_ms=0"
    gateway, _ = await asyncio.gather(cluster.start_gateway(drain_delay_s=0.1), cluster.start_worker(model))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    head = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    idle = asyncio.create_task(asyncio.to_thread(exchange_bytes, gateway.port, head, timeout_s=30))
    sent = [asyncio.create_task(gateway.send(client, f"{i}", x_timeout_ms="25000")) for i in range(8)]
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 8, "all requests are in flight")
    gateway.program.signal(signal.SIGTERM)
    answers = await asyncio.gather(*sent)
    assert [vector_bytes(each.json()["embedding"]) for each in answers] == [null_vector(f"{i}") for i in range(8)]
    assert {each.headers["connection"] for each in answers} == {"close"}, (
        "an answer to an earlier request keeps its connection open"
    )
    assert (await idle).count(b"HTTP/1.1 ") == 1
    assert await gateway.program.wait_until_ended() == 0


async def send_patient_request(gateway: GatewayProcess, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """Returns a request with a timeout of 60 s, once it is in flight."""
    sent = asyncio.create_task(gateway.send(client, "a", x_timeout_ms="60000"))
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 1, "the request is in flight")
    return sent


@pytest.mark.usefixtures("fake_heartbeat")
async def test_requests_beyond_the_drain_grace_get_a_503(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """A request without a worker and with a distant deadline gets a 503 with Retry-After; its entry is removed."""
    gateway = await cluster.start_gateway(drain_delay_s=0.1, drain_grace_s=1)
    sent = await send_patient_request(gateway, client)
    gateway.program.signal(signal.SIGTERM)
    answer = await sent
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert await gateway.program.wait_until_ended() == 0
    assert "Traceback" not in gateway.program.output


@pytest.mark.leaves_anything
@pytest.mark.usefixtures("fake_heartbeat")
async def test_a_second_signal_ends_a_drain(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """A second SIGTERM ends the gateway long before the end of delay and grace, despite requests in flight.

    The entries that it leaves in the queue run although no client waits for them.
    """
    gateway = await cluster.start_gateway(drain_delay_s=30, drain_grace_s=30)
    sent = await send_patient_request(gateway, client)
    gateway.program.signal(signal.SIGTERM)
    await wait_until(lambda: gateway.missing() == ["draining"], "the gateway reports that it drains")
    gateway.program.signal(signal.SIGTERM)
    await gateway.program.wait_until_ended()
    await asyncio.gather(sent, return_exceptions=True)


async def test_gateways_with_a_shared_listener_drain_under_load(cluster: GatewayCluster) -> None:
    """If one of two gateways that share a listening socket stops, the other serves every new connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=2_048) as listen:
        env = cluster.env(drain_delay_s=0.5)
        with gateway_on_socket(listen, env) as one, gateway_on_socket(listen, env) as two:
            await cluster.start_worker()
            url = f"http://127.0.0.1:{listen.getsockname()[1]}"
            await wait_until(lambda: plain_http.get(f"{url}/readyz").status_code == 200, "a gateway is ready")
            load = Load([url])
            running = asyncio.create_task(load.run())
            await wait_until(lambda: load.served > 200, "the load is running")
            one.send_signal(signal.SIGTERM)
            await wait_until(lambda: one.poll() is not None, "the gateway has ended")
            served = load.served
            await wait_until(lambda: load.served > served + 200, "the load continues")
            load.running = False
            await running
            assert (load.failures, one.returncode, two.poll()) == ([], 0, None)


@contextmanager
def gateway_on_socket(listen: socket.socket, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a gateway that accepts connections from an inherited listening socket."""
    command = [sys.executable, "-P", "-c", RUN_ON_INHERITED_SOCKET % listen.fileno()]
    process = subprocess.Popen(
        command, env=os.environ | env, pass_fds=[listen.fileno()], stdout=subprocess.DEVNULL, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
