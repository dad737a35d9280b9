"""The admin port, over real HTTP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from shared.process.admin_server import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    TIMEOUT_S,
    AdminServer,
    PortTakenError,
    _Handler,
)


@dataclass
class Health:
    """The state that the process reports."""

    missing: list[str] = field(default_factory=list)
    live: bool = True


@pytest.fixture
def health() -> Health:
    """A healthy process."""
    return Health()


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry for one test."""
    return CollectorRegistry()


@pytest.fixture
def client(health: Health, registry: CollectorRegistry) -> Iterator[httpx.Client]:
    """A client of a running admin server."""
    server = AdminServer("127.0.0.1", 0, lambda: health.missing, lambda: health.live, registry)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client
    server.stop()


def test_a_healthy_process_says_so(client: httpx.Client) -> None:
    """All probes return 200 with a status."""
    for path in ("/livez", "/readyz", "/health"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readyz_names_what_is_missing(client: httpx.Client, health: Health) -> None:
    """Readyz returns 503 with the missing parts, and 200 again once they are there."""
    health.missing = ["redis", "worker"]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable", "missing": ["redis", "worker"]})
    assert client.get("/livez").status_code == 200
    assert client.get("/health").json() == answer.json(), "a health check means readiness"
    health.missing = []
    assert client.get("/readyz").status_code == client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("exclude=worker", ["redis"]),
        ("exclude=worker&exclude=redis", []),
        ("exclude=", ["redis", "worker"]),
        ("exclude=red", ["redis", "worker"]),
        ("x=worker", ["redis", "worker"]),
    ],
)
def test_a_probe_excludes_parts(client: httpx.Client, health: Health, query: str, missing: list[str]) -> None:
    """Excluded parts do not count."""
    health.missing = ["redis", "worker"]
    answer = client.get(f"/readyz?{query}")
    assert (answer.status_code, answer.json().get("missing", [])) == (503 if missing else 200, missing)


def test_livez_fails_with_the_process(client: httpx.Client, health: Health) -> None:
    """A process that hangs is not alive."""
    health.live = False
    assert client.get("/livez").status_code == 503


def test_metrics_are_those_of_the_registry(client: httpx.Client, registry: CollectorRegistry) -> None:
    """Prometheus reads the counters of this process."""
    Counter("redbatch_example", "An example.", registry=registry).inc(3)
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "redbatch_example_total 3.0" in answer.text


def test_other_paths_and_methods_are_refused(client: httpx.Client) -> None:
    """The server has three paths, which can only be read."""
    assert client.get("/").status_code == 404
    assert client.post("/metrics").status_code == 405


def test_it_writes_no_access_log(client: httpx.Client, capfd: pytest.CaptureFixture[str]) -> None:
    """Probes, which come every second, write no log lines."""
    client.get("/livez")
    written = capfd.readouterr()
    assert (written.err, "/livez" in written.out) == ("", False)  # a counted line of an earlier test may be there


def test_stop_frees_the_port() -> None:
    """After a stop the port is free; a second stop does nothing; a port in use is reported by its number."""
    server = AdminServer("127.0.0.1", 0, list, lambda: True, CollectorRegistry())
    server.start()
    port = server.port
    second = AdminServer("127.0.0.1", port, list, lambda: True, CollectorRegistry())
    with pytest.raises(PortTakenError, match="in use"):
        second.start()
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_a_default_port_that_is_taken_is_replaced(registry: CollectorRegistry) -> None:
    """With `or_free`, a server takes the port if it is free, and another one if it is not."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = AdminServer("127.0.0.1", port, list, lambda: True, registry, or_free=True)
        server.start()
        assert server.port not in {0, port}
        assert httpx.get(f"http://127.0.0.1:{server.port}/livez").status_code == 200
        server.stop()
    server = AdminServer("127.0.0.1", port, list, lambda: True, registry, or_free=True)
    server.start()
    assert server.port == port
    server.stop()


def test_a_silent_client_does_not_delay_others(client: httpx.Client) -> None:
    """A connection that sends nothing occupies a separate thread."""
    address = (client.base_url.host, client.base_url.port or 0)
    with socket.create_connection(address, timeout=5):
        assert client.get("/livez").status_code == 200


HALF = b"GET /livez HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture
def quick() -> Iterator[tuple[str, int]]:
    """The address of a server whose clients have a second and a half."""
    server = AdminServer("127.0.0.1", 0, list, lambda: True, CollectorRegistry())
    server.timeout_s = 1.5
    server.start()
    yield "127.0.0.1", server.port
    server.stop()


def received(connection: socket.socket) -> bytes:
    """Returns all that a server sends before it closes a connection."""
    data = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            data += part
    return data


def test_silent_connections_take_no_further_threads(client: httpx.Client) -> None:
    """However many connections are silent, threads are few, and a probe is answered at once."""
    address = (client.base_url.host, client.base_url.port or 0)
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(5 * MAX_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(address, timeout=5))
            connection.sendall(HALF if number % 2 else b"")
        for _ in range(3):
            assert client.get("/livez", timeout=TIMEOUT_S - 1).status_code == 200
        assert threading.active_count() - before <= MAX_CONNECTIONS


@pytest.mark.parametrize("line", [b"GET /" + b"a" * 10**6, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10**5])
def test_a_large_head_is_refused_as_it_arrives(quick: tuple[str, int], line: bytes) -> None:
    """A head without an end is read up to the limit; the answer is 431."""
    with socket.create_connection(quick, timeout=5) as connection:
        connection.sendall(line[: MAX_HEAD_BYTES + 1])
        assert received(connection).startswith(b"HTTP/1.0 431 ")
    with socket.create_connection(quick, timeout=5) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(line)
        assert received(connection)[:13] in {b"HTTP/1.0 431 ", b""}  # none if the rest of the line has reset it


def test_a_slow_head_is_ended(quick: tuple[str, int]) -> None:
    """Time counts from the connection, however often a byte comes."""
    began = time.monotonic()
    ended = pytest.raises((BrokenPipeError, ConnectionResetError))
    with socket.create_connection(quick, timeout=5) as connection, ended:
        while time.monotonic() - began < 20:
            connection.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - began >= 1.2


class QuickBytes:
    """A connection on which a byte has always arrived: of a client faster than any timeout of a socket."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def settimeout(self, timeout_s: float) -> None:
        """Takes any time but none."""
        assert timeout_s > 0

    def recv(self, _num_bytes: int) -> bytes:
        """Returns the next byte."""
        self.num_bytes += 1
        time.sleep(1e-3)
        return b"G"


def test_a_head_that_comes_without_pauses_is_ended() -> None:
    """Its time is over after `timeout_s`, although no wait for a byte takes long."""
    handler = _Handler.__new__(_Handler)
    connection = QuickBytes()
    handler.connection, handler.server = cast("Any", connection), cast("Any", SimpleNamespace(timeout_s=0.1))
    with pytest.raises(TimeoutError):
        handler._read_head()
    assert connection.num_bytes <= 100


def test_no_head_leaves_a_traceback(quick: tuple[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    """Heads that end halfway, or come too late, are no errors of ours."""
    for head in (b"", HALF, b"GET", b"\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\0 HTTP/1.1\r\n: \r\n\r\n"):
        with socket.create_connection(quick, timeout=5) as connection:
            connection.sendall(head)
            connection.shutdown(socket.SHUT_WR)
            received(connection)
    with socket.create_connection(quick, timeout=5) as connection:
        connection.sendall(HALF)
        assert received(connection) == b""
    written = capfd.readouterr()
    assert (written.err, "Traceback" in written.out) == ("", False)  # a counted line of an earlier test may be there
