"""Connections of strangers: how many there may be, and how long they may stay without a request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway import few_files
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    exchange_bytes,
    gateway_of,
    is_listening,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

Connect = Callable[..., socket.socket]
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
SLOW_BODY = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
HALF_HEAD = GET + b"a: " + b"x" * 60_000
MAX_FILES = 400
HEAD_TIMEOUT_S = 2.0


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections to a gateway that are closed after the test: with `sent`, and from the address `source`."""
    with contextlib.ExitStack() as stack:

        def connect(gateway: GatewayProcess, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
            address = ("127.0.0.1", gateway.port)
            connection = socket.create_connection(address, timeout=10, source_address=(source, 0))
            stack.callback(connection.close)
            with contextlib.suppress(OSError):  # the gateway has closed it already
                connection.sendall(sent)
            return connection

        yield connect


def is_closed(connection: socket.socket) -> bool:
    """Whether the gateway has closed a connection on which it has sent nothing."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def ask(connection: socket.socket) -> bytes:
    """Sends a request on an open connection and returns the answer."""
    connection.sendall(GET + b"\r\n")
    return connection.recv(65_536)


async def wait_until_seen(gateway: GatewayProcess, number: int) -> None:
    """Waits until a gateway has a number of connections, by its admin port."""
    await wait_until(lambda: gateway.metric("redbatch_connections") == number, f"there are {number} connections")


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (GET + b"a: " + b"x" * 70_000, 431, "head_too_large"),
        (GET + b"a: b\r\n" * 100 + b"\r\n", 431, "head_too_large"),
        (GET.replace(b"livez", b"x" * 9_000) + b"\r\n", 414, "url_too_long"),
    ],
    ids=["bytes", "fields", "URL"],
)
def test_a_head_over_a_limit_is_refused(served: GatewayProcess, sent: bytes, status: int, code: str) -> None:
    """A stranger gets a 431 or a 414 that names the setting, and the connection is closed; the refusal is counted."""
    before = served.errors(code)
    answer = exchange_bytes(served.port, sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert code.encode() in answer
    assert b"max_" in answer
    assert served.errors(code) == before + 1


def test_the_largest_head_is_served(served: GatewayProcess) -> None:
    """A head of 64 KiB with 100 fields, and a URL of 8 KiB, are served."""
    query = b"?" + b"q" * (8 * 2**10 - len(b"/livez?"))
    head = GET.replace(b"/livez", b"/livez" + query) + b"connection: close\r\n" + b"a: b\r\n" * 97 + b"b: "
    filled = head + b"x" * (64 * 2**10 - len(head) - 4) + b"\r\n\r\n"
    assert exchange_bytes(served.port, filled).startswith(b"HTTP/1.1 200 ")


async def test_a_connection_without_a_head_is_closed(cluster: GatewayCluster, connect: Connect) -> None:
    """Silent connections, half heads and heads that come by the byte are closed in time; idle ones stay."""
    gateway = await cluster.start_gateway(head_timeout_s=HEAD_TIMEOUT_S)
    idle = connect(gateway, GET + b"\r\n")
    assert idle.recv(65_536).startswith(b"HTTP/1.1 200 ")
    half_after_answer = connect(gateway, GET + b"\r\n")
    assert half_after_answer.recv(65_536).startswith(b"HTTP/1.1 200 ")
    half_after_answer.sendall(GET)
    unread_body = connect(gateway, GET + b"Content-Length: 100\r\n\r\n")
    assert unread_body.recv(65_536).startswith(b"HTTP/1.1 200 ")
    late_body = connect(gateway, GET + b"Content-Length: 100\r\n\r\n")
    assert late_body.recv(65_536).startswith(b"HTTP/1.1 200 ")
    late_body.sendall(b"b" * 100)
    half_behind_request = connect(gateway, GET + b"\r\n" + GET)
    assert half_behind_request.recv(65_536).startswith(b"HTTP/1.1 200 ")
    slow = connect(gateway, GET + b"a: ")
    started = time.monotonic()
    strangers = [connect(gateway), connect(gateway, GET), half_after_answer, unread_body, half_behind_request, slow]

    def all_closed() -> bool:
        with contextlib.suppress(OSError):
            slow.send(b"x")
        return all(map(is_closed, strangers))

    await wait_until(all_closed, "the connections are closed", poll_s=0.05)
    assert time.monotonic() - started >= HEAD_TIMEOUT_S / 2
    assert ask(idle).startswith(b"HTTP/1.1 200 ")
    assert ask(late_body).startswith(b"HTTP/1.1 200 ")
    assert gateway.metric('redbatch_closed_connections_total{reason="head_timeout"}') == len(strangers)


def answer_of(connection: socket.socket) -> bytes:
    """Returns what was sent on a connection until the gateway closed its side."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


async def test_unfinished_heads_have_a_common_bound(cluster: GatewayCluster, connect: Connect) -> None:
    """Of 30 half heads of 60 KB of a stranger, those that fit into 1 MiB stay open, and the others get a 503.

    Other clients are served.
    """
    gateway = await cluster.start_gateway(head_timeout_s=60)
    heads = [connect(gateway, HALF_HEAD, source="127.0.0.2") for _ in range(30)]
    num_refused = 30 - 2**20 // len(HALF_HEAD)
    await wait_until(lambda: gateway.errors("too_many_heads") == num_refused, "heads that do not fit are refused")
    for each in heads[:num_refused]:
        head, _, body = answer_of(each).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in head
        assert b"send the request again" in body
    assert not any(map(is_closed, heads[num_refused:]))
    for size in (1_000, 8_000, 60_000):
        client = connect(gateway, GET + b"a: " + b"x" * size)
        await wait_until(lambda: gateway.metric("redbatch_connections") >= 30 - num_refused, "it is accepted")
        client.sendall(b"\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200", size
    assert gateway.errors("too_many_heads") >= num_refused


async def test_half_heads_behind_an_answer_have_that_bound(cluster: GatewayCluster, connect: Connect) -> None:
    """They came in one read with the request before them; nothing has to come after it."""
    gateway = await cluster.start_gateway(head_timeout_s=60)
    heads = [connect(gateway, GET + b"\r\n" + HALF_HEAD) for _ in range(30)]
    num_refused = 30 - 2**20 // len(HALF_HEAD)
    await wait_until(lambda: gateway.errors("too_many_heads") == num_refused, "heads that do not fit are refused")
    for each in heads[:num_refused]:
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", answer_of(each))
        assert statuses == [b"200", b"503"]


async def test_heads_whose_bodies_are_dropped_have_that_bound(cluster: GatewayCluster, connect: Connect) -> None:
    """Requests are refused, and their bodies do not come: the oldest connections are closed."""
    gateway = await cluster.start_gateway()
    unread = SLOW_BODY.replace(b"application/json", b"text/plain").replace(b"\r\n\r\n", b"\r\na: %b\r\n\r\n")
    connections = [connect(gateway, unread % (b"x" * 60_000)) for _ in range(30)]
    for each in connections:
        assert each.recv(12) == b"HTTP/1.1 415"
    evicted = 'redbatch_closed_connections_total{reason="evicted"}'
    await wait_until(lambda: gateway.metric(evicted) >= 30 - 2**20 // 60_000, "those that do not fit are closed")


def test_an_answer_comes_before_the_end_for_a_head_over_a_limit(served: GatewayProcess) -> None:
    """The head comes behind a request: its 431 would seem the answer to that."""
    request = SLOW_BODY.replace(b"Length: 100", b"Length: 2") + b"{}"
    answer = exchange_bytes(served.port, request + GET + b"a: b\r\n" * 101)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"400"]
    assert b"\r\nconnection: close\r\n" in answer


def test_requests_without_end_before_an_answer_are_refused(served: GatewayProcess, connect: Connect) -> None:
    """A connection that brings thousands of requests in one read is closed, and counted."""
    reason = 'redbatch_closed_connections_total{reason="pipelined"}'
    before = served.metric(reason)
    connection = connect(served, GET.replace(b"livez", b"openapi.json") + b"\r\n" + (GET + b"\r\n") * 5_000)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    assert served.metric(reason) == before + 1


async def test_the_oldest_idle_connection_gives_way(cluster: GatewayCluster, connect: Connect) -> None:
    """At the maximum, a new connection closes the one that has waited longest; one with a request stays."""
    gateway = await cluster.start_gateway(max_connections=10, max_address_ratio=1, head_timeout_s=60)
    busy = connect(gateway, SLOW_BODY)
    silent = [connect(gateway) for _ in range(9)]
    await wait_until_seen(gateway, 10)
    newest = connect(gateway)
    await wait_until(lambda: is_closed(silent[0]), "the oldest is closed")
    assert not any(map(is_closed, [busy, *silent[1:], newest]))
    assert plain_http.get(f"{gateway.url}/livez").status_code == httpx.codes.OK
    await wait_until(lambda: is_closed(silent[1]), "the second oldest is closed")
    assert not any(map(is_closed, [busy, *silent[2:], newest]))
    assert gateway.metric('redbatch_closed_connections_total{reason="evicted"}') == 2


async def test_an_address_has_a_share_of_the_connections(cluster: GatewayCluster, connect: Connect) -> None:
    """An address that opens more than its share loses its own connections, and no other client loses one."""
    gateway = await cluster.start_gateway(max_connections=20, max_address_ratio=0.5, head_timeout_s=60)
    others = [connect(gateway, source="127.0.0.2") for _ in range(5)]
    greedy = [connect(gateway) for _ in range(30)]
    await wait_until(lambda: sum(map(is_closed, greedy)) == 20, "the address has its share")
    assert all(map(is_closed, greedy[:20]))
    assert not any(map(is_closed, others))


async def test_proxies_share_what_there_is(cluster: GatewayCluster, connect: Connect) -> None:
    """An address in trusted_proxies may have all connections: behind it are many clients."""
    proxied = {"max_connections": 20, "max_address_ratio": 0.1, "trusted_proxies": "127.0.0.3"}
    gateway = await cluster.start_gateway(**proxied, head_timeout_s=60)
    connections = [connect(gateway, source="127.0.0.3") for _ in range(18)]
    await wait_until_seen(gateway, 18)
    assert not any(map(is_closed, connections))


async def test_probes_are_answered_while_all_connections_are_busy(cluster: GatewayCluster, connect: Connect) -> None:
    """While all connections have requests, probes are answered, and other requests are a 503 with Retry-After."""
    prefix = {"root_path": "/prefix", "max_connections": 4, "max_address_ratio": 1}
    gateway = await cluster.start_gateway(**prefix, body_timeout_s=60)
    busy = [connect(gateway, SLOW_BODY) for _ in range(4)]
    await wait_until_seen(gateway, 4)
    for path in ("/livez", "/prefix/livez", "/health"):
        answer = await asyncio.to_thread(plain_http.get, f"{gateway.url}{path}")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close"), path
    assert plain_http.get(f"{gateway.admin}/metrics").status_code == httpx.codes.OK
    refused = gateway.embed({"text": "a"})
    assert (refused.status_code, error_of(refused)["code"]) == (503, "too_many_connections")
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    for send, path in ((plain_http.post, "/livez"), (plain_http.get, "/x/livez"), (plain_http.get, "/prefix/x/livez")):
        other = await asyncio.to_thread(send, f"{gateway.url}{path}")
        assert error_of(other)["code"] == "too_many_connections", path
    assert not any(map(is_closed, busy))
    busy[0].close()
    await wait_until_seen(gateway, 3)
    assert gateway.embed({"text": "a"}).json()["error"]["code"] != "too_many_connections"


async def test_a_refused_request_holds_no_place(cluster: GatewayCluster, connect: Connect) -> None:
    """A connection whose request is answered, and whose body still comes, gives way to a new one."""
    gateway = await cluster.start_gateway(max_connections=4, max_address_ratio=1, body_timeout_s=60)
    refused = [connect(gateway, SLOW_BODY.replace(b"application/json", b"text/plain")) for _ in range(4)]
    for each in refused:
        assert each.recv(12) == b"HTTP/1.1 415"
    assert plain_http.get(f"{gateway.url}/v1/models").status_code == httpx.codes.OK


async def test_connections_leave_open_files(cluster: GatewayCluster, connect: Connect) -> None:
    """A gateway that may have 400 open files serves while 450 silent connections are opened, and afterwards."""
    env = cluster.env() | few_files.env(MAX_FILES)
    gateway = gateway_of(await cluster.processes.start("gateway", few_files.MODULE, env, is_listening))
    connections = [connect(gateway) for _ in range(MAX_FILES + 50)]
    for _ in range(3):
        assert plain_http.get(f"{gateway.url}/health").status_code == httpx.codes.OK
        assert plain_http.get(f"{gateway.admin}/metrics").status_code == httpx.codes.OK
    assert sum(map(is_closed, connections)) >= MAX_FILES + 50 - MAX_FILES * 3 // 8
