"""Errors as they are counted: by their code, and by the queue that they were about."""

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


def counted(gateway: GatewayProcess) -> float:
    """Returns the number of all errors."""
    return gateway.metric("redbatch_errors_total")


async def test_errors_are_counted_by_code_and_queue(cluster: GatewayCluster) -> None:
    """Once each, whatever the route and its words; what is wrong before a queue is found is of none."""
    gateway = await cluster.start_gateway(max_owed_inputs=10)
    assert gateway.embed({"text": "a"}).status_code == 503
    tei = plain_http.post(f"{gateway.url}/embed", json={"inputs": "a"})
    openai = plain_http.post(f"{gateway.url}/v1/embeddings", json={"input": "a", "model": cluster.queue})
    assert (tei.status_code, openai.status_code) == (503, 503)
    assert gateway.errors("no_worker", cluster.queue) == 3
    assert gateway.embed({}).status_code == 400
    assert gateway.errors("invalid_request") == 1
    full = plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"] * 11})
    assert (full.status_code, error_of(full)["code"]) == (503, "jobs_full")
    assert gateway.errors("jobs_full", cluster.queue) == 1
    assert plain_http.get(f"{gateway.url}/jobs/none").status_code == 404
    assert gateway.errors("job_not_found") == 1
    assert counted(gateway) == 6
    refused = [f'redbatch_requests_total{{route="{route}",status="503"}}' for route in ("/embed", "/jobs")]
    assert [gateway.metric(each) for each in refused] == [2, 1]


async def test_what_is_no_request_for_work_is_no_error(cluster: GatewayCluster) -> None:
    """A probe, a look at what is served, or a path that does not exist: nothing of it is among the requests either."""
    gateway = await cluster.start_gateway()
    for path, status in (("/ping", 503), ("/readyz", 503), ("/info", 503), ("/v1/models/none", 404), ("/none", 404)):
        assert plain_http.get(f"{gateway.url}{path}").status_code == status
    assert counted(gateway) == 0
    assert gateway.metric("redbatch_requests_total") == 0


async def test_a_gateway_that_reads_much_is_not_overloaded(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """A body that has no room beside others gets a code of its own: more workers would not help."""
    gateway = await cluster.start_gateway(max_bodies_bytes=1)
    with socket.create_connection(("127.0.0.1", gateway.port)) as first:
        first.sendall(HEAD + LARGE)

        async def refused() -> bool:
            answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", content=b'{"text": 1' + LARGE)
            return answer.status_code == 429 and error_of(answer)["code"] == "too_many_bodies"

        await wait_until(refused, "there is no room for another")
    assert gateway.errors("too_many_bodies") == 1
    assert gateway.errors("overloaded") == 0
