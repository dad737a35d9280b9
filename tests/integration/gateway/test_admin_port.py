"""The admin ports of processes that share a host."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import psutil
import pytest

from api.memory_bounds import ADMIN_BYTES
from shared.process.admin_server import MAX_CONNECTIONS, MAX_HEAD_BYTES
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, metrics_url

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.fixture
def taken_defaults() -> Iterator[None]:
    """Holds the default admin ports, as another gateway and another worker of this host do."""
    with closing(socket.socket()) as first, closing(socket.socket()) as second:
        for each, port in ((first, 9090), (second, 9091)):
            with suppress(OSError):  # another process holds it already
                each.bind(("127.0.0.1", port))
                each.listen()
        yield


@pytest.mark.usefixtures("taken_defaults")
async def test_a_second_process_takes_a_free_port(cluster: GatewayCluster) -> None:
    """Where the default admin ports are taken, a gateway and a worker serve metrics on free ones."""
    gateway = await cluster.start_gateway(admin_port=None)
    worker = await cluster.start_worker(admin_port=None)
    assert gateway.admin_port not in {0, 9090}
    assert "redbatch_redis_up" in plain_http.get(f"{gateway.admin}/metrics").text
    assert "redbatch_worker_up" in plain_http.get(metrics_url(worker)).text


@pytest.mark.parametrize(("module", "message"), [("api", "gateway"), ("gpuworker", "worker")])
async def test_a_port_that_is_set_is_not_replaced(module: str, message: str, cluster: GatewayCluster) -> None:
    """A port that the user sets is the port that monitoring scrapes: if it is taken, the process ends and says so."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environment = cluster.env(model="null", admin_port=port)
        program = await cluster.processes.start(message, module, environment)
        assert await program.wait_until_ended() == 1
    problem = f"cannot listen on the admin port 127.0.0.1:{port}: Address already in use"
    assert f"redbatch: {problem}; choose another with --admin-port (REDBATCH_ADMIN_PORT)\n" in program.output


async def test_a_taken_port_is_an_error_of_the_command(cluster: GatewayCluster) -> None:
    """Its line begins as those of all commands do, and says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        program = await cluster.processes.start("gateway", "api", cluster.env(port=port, admin_port=0))
        assert await program.wait_until_ended() == 1
    assert f"redbatch: port {port} is taken: stop what listens there, or choose another with --port" in program.output


async def test_the_main_port_says_where_metrics_are(cluster: GatewayCluster) -> None:
    """The 404 of /metrics names the admin port, also a free one; other paths are referred to the documentation."""
    gateway = await cluster.start_gateway()
    answer = plain_http.get(f"{gateway.url}/metrics")
    assert answer.status_code == 404
    assert f"on its admin port, {gateway.admin_port}." in answer.text
    assert "see /docs" in plain_http.get(f"{gateway.url}/metric").text


async def test_the_admin_port_takes_no_more_memory_than_stated(cluster: GatewayCluster) -> None:
    """Large heads of which the end does not come, and then pages that no client reads, on all its connections."""
    gateway = await cluster.start_gateway()
    assert plain_http.get(f"{gateway.admin}/metrics").status_code == 200
    process = psutil.Process(gateway.program.pid)
    before = process.memory_info().rss
    with ExitStack() as stack:
        for end in (b"", b"\r\n\r\n"):
            for _ in range(MAX_CONNECTIONS):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.admin_port), 10))
                connection.sendall(b"GET /metrics HTTP/1.1\r\na: " + b"x" * (MAX_HEAD_BYTES - 100) + end)
            assert plain_http.get(f"{gateway.admin}/livez").status_code == 200
    assert process.memory_info().rss - before <= MAX_CONNECTIONS * ADMIN_BYTES
