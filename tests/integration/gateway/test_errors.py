"""The metrics of errors: by code and by queue."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

LARGE = b" " * 100_000
HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n"


def num_errors(gateway: GatewayProcess) -> float:
    """Returns the total number of errors in the metrics."""
    return gateway.metric("redbatch_errors_total")


async def test_errors_are_counted_by_code_and_queue(cluster: GatewayCluster) -> None:
    """Each error is counted once, for any route and dialect; errors before a queue is found have an empty queue."""
    gateway = await cluster.start_gateway(max_owed_inputs=10)
    assert gateway.embed({"text": "a"}).status_code == 503
    tei = plain_http.post(f"{gateway.url}/embed", json={"inputs": "a"})
    openai = plain_http.post(f"{gateway.url}/v1/embeddings", json={"input": "a", "model": cluster.queue})
    assert (tei.status_code, openai.status_code) == (503, 503)
    assert gateway.errors("no_worker", cluster.queue) == 3
    assert gateway.embed({}).status_code == 400
    assert gateway.errors("invalid_request") == 1
    large = plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"] * 11})
    assert (large.status_code, error_of(large)["code"]) == (413, "too_large")
    assert gateway.errors("too_large", cluster.queue) == 1
    assert plain_http.get(f"{gateway.url}/jobs/none").status_code == 404
    assert gateway.errors("job_not_found") == 1
    assert num_errors(gateway) == 6
    answers = {"/embed": 503, "/jobs": 413}
    names = [f'redbatch_requests_total{{route="{route}",status="{status}"}}' for route, status in answers.items()]
    assert [gateway.metric(each) for each in names] == [2, 1]


async def test_probes_and_unknown_paths_are_not_counted(cluster: GatewayCluster) -> None:
    """Probes, requests for information and unknown paths are counted neither as errors nor as requests."""
    gateway = await cluster.start_gateway()
    for path, status in (("/ping", 503), ("/readyz", 503), ("/info", 503), ("/v1/models/none", 404), ("/none", 404)):
        assert plain_http.get(f"{gateway.url}{path}").status_code == status
    assert num_errors(gateway) == 0
    assert gateway.metric("redbatch_requests_total") == 0


async def test_the_limit_of_body_bytes_has_its_own_error_code(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """A body beyond the limit of all bodies gets too_many_bodies, not overloaded, because workers would not help."""
    gateway = await cluster.start_gateway(max_bodies_bytes=1)
    with socket.create_connection(("127.0.0.1", gateway.port)) as first:
        first.sendall(HEAD + LARGE)

        async def is_refused() -> bool:
            answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", content=b'{"text": 1' + LARGE)
            return answer.status_code == 429 and error_of(answer)["code"] == "too_many_bodies"

        await wait_until(is_refused, "a second body is refused")
    assert gateway.errors("too_many_bodies") == 1
    assert gateway.errors("overloaded") == 0


async def test_small_bodies_that_do_not_end_are_bounded(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """They count against the budget, of which a part is left to a body that is as small as usual."""
    gateway = await cluster.start_gateway(max_bodies_bytes=100_000)
    with socket.create_connection(("127.0.0.1", gateway.port)) as first:
        first.sendall(HEAD + b" " * 60_000)

        async def is_refused() -> bool:
            return (await asyncio.to_thread(_send_half, gateway)).startswith(b"HTTP/1.1 429")

        await wait_until(is_refused, "a second small body is refused")
        assert gateway.embed({}).status_code == 400
    assert gateway.errors("too_many_bodies") == 1


def _send_half(gateway: GatewayProcess) -> bytes:
    """Returns the answer to a body that does not end, or b"" if there is none within five seconds."""
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(HEAD + b" " * 60_000)
        connection.settimeout(5)
        try:
            return connection.recv(4096)
        except TimeoutError:
            return b""
