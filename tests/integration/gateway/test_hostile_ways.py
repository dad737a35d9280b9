"""What hostile clients send, over all ways to a gateway with API keys: directly and through nginx with TLS.

Within the gateway there are two ways as well: the fast path of requests that embed, and the documented application.
The attacks of tests/chaos/test_hostile.py and test_strangers.py go over the same ways, many at once (`make chaos`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio

from shared import api_keys
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster, log_lines, null_vector, vector_bytes
from tests.integration.gateway.http_ways import BY_NGINX, DIRECTLY, SETTINGS, THROUGH_NGINX, WAYS, Way, open_way
from tests.nginx import nginx
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(60)]

TIMEOUT_S = 1.0
MAX_CLOSE_S = 8.0
MAX_BODY_BYTES, MAX_SENT_BYTES = 2_000_000, 4_000_000
TIMEOUTS = {"head_timeout_s": TIMEOUT_S, "body_timeout_s": TIMEOUT_S}
OF_STALLS = ("Redis is out of reach", "cannot read API keys")
"""What a gateway warns of if the machine stands still for a second or two."""
NGINX_TIMEOUT = {"client_header_timeout 10s;": f"client_header_timeout {TIMEOUT_S:.0f}s;"}


class Attack(NamedTuple):
    """What a client sends, up to and with what is `repeated` up to MAX_SENT_BYTES, and the status of the answer."""

    sent: bytes
    status: int
    repeated: bytes = b""

    async def parts(self, begin: bytes) -> AsyncIterator[bytes]:
        """Yields a request that begins so."""
        yield begin + self.sent
        for _ in range(MAX_SENT_BYTES // len(self.repeated) if self.repeated else 0):
            yield self.repeated
            await asyncio.sleep(0)


def whole(body: bytes, status: int) -> Attack:
    """Returns an attack whose body is complete."""
    return Attack(b"Content-Length: %d\r\n\r\n" % len(body) + body, status)


FIELDS = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
HEADS = {
    "fields over the limit": Attack(b"a: b\r\n" * 100 + b"\r\n", 431),
    "fields without an end": Attack(b"a: b\r\n" * 33_000, 431),
    "a value over the limit": Attack(b"a: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    "a value without an end": Attack(b"a: " + b"x" * 200_000, 431),
    "a name without an end": Attack(b"x" * 200_000, 431),
    "a space in a name": Attack(b"a b: c\r\n\r\n", 400),
    "a space after a name": Attack(b"a : b\r\n\r\n", 400),
    "a folded value": Attack(b"a: b\r\n c\r\n\r\n", 400),
    "a NUL in a value": Attack(b"a: b\0c\r\n\r\n", 400),
    "two lengths": Attack(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "a length and chunks": Attack(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a negative length": Attack(b"Content-Length: -1\r\n\r\n{}", 400),
    "a length over 64 bits": Attack(b"Content-Length: %d\r\n\r\n{}" % 10**22, 400),
    "chunks that are none": Attack(b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", 400),
}
"""What follows the usual fields, and is refused before the API key is read. A head without an end has 200 KB: who sends
256 KiB after the answer is cut off, and may not see it.
"""

FIRST_LINES = {
    "a URL over the limit": Attack(b"GET /redbatch/" + b"u" * 9_000 + FIELDS + b"\r\n", 414),
    "a URL without an end": Attack(b"GET /redbatch/" + b"u" * 200_000, 414),
    "not HTTP": Attack(b"NONSENSE\r\n\r\n", 400),
    "not text": Attack(b"\x16\x03\x01\x00\xff" + bytes(255), 400),
    "HTTP/2": Attack(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a tunnel": Attack(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
}
BODIES = {
    "no JSON": whole(b"{", 400),
    "deep JSON": whole(b'{"texts": ' + b"[" * 200_000, 400),
    "wide JSON": whole(b'{"texts": [1' + b",1" * 200_000 + b"]}", 400),
    "half a surrogate": whole(b'{"text": "\\ud800"}', 400),
    "unfinished": Attack(b"Content-Length: 100\r\n\r\n{", 408),
    "unfinished chunks": Attack(b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408),
    "too large, announced": Attack(b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
    "too large, sent": Attack(b"Content-Length: 40000000\r\n\r\n", 413, b" " * 65_536),
    "larger than any": Attack(b"Content-Length: 300000000\r\n\r\n", 413),
    "chunks without an end": Attack(b"Transfer-Encoding: chunked\r\n\r\n", 413, b"4000\r\n%b\r\n" % (b" " * 0x4000)),
}
LINES = {
    "no JSON": whole(b'"a"\n{\n', 400),
    "deep JSON": whole(b"[" * 200_000 + b"\n", 400),
    "a line without an end": Attack(b"Transfer-Encoding: chunked\r\n\r\n", 413, b"4000\r\n%b\r\n" % (b"a" * 0x4000)),
    "unfinished": Attack(b'Content-Length: 100\r\n\r\n"a"\n', 408),
    "larger than any": Attack(b"Content-Length: 300000000\r\n\r\n", 413),
}

JSON_FIELDS = FIELDS + b"Content-Type: application/json\r\n"
ROUTES = {
    "fast path": b"POST /redbatch/embed" + JSON_FIELDS,
    "fast path, as a job": b"POST /redbatch/embed" + JSON_FIELDS + b"Prefer: respond-async\r\n",
    "documented application": b"POST /redbatch/jobs" + JSON_FIELDS,
    "lines": b"POST /redbatch/jobs" + FIELDS + b"Content-Type: application/x-ndjson\r\n",
}

Ways = dict[str, Way]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ways]:
    """The ways to a gateway with a worker: it serves after all attacks, has logged no error, and leaves no key."""
    folder = tmp_path_factory.mktemp("ways")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(Server())
        cluster = GatewayCluster(Processes(folder), server.url, "ways")
        stack.callback(cluster.check_leaks)
        await stack.enter_async_context(cluster.processes)
        key = await new_key(server.url)
        settings = SETTINGS | TIMEOUTS | {"max_v1_body_bytes": MAX_BODY_BYTES}
        gateway, _ = await asyncio.gather(cluster.start_gateway(**settings), cluster.start_worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        ways = {
            name: await stack.enter_async_context(open_way(name, gateway, folder, key, NGINX_TIMEOUT))
            for name in (DIRECTLY, THROUGH_NGINX)
            if name == DIRECTLY or nginx() is not None
        }
        yield ways
        for way in ways.values():
            assert await serves(way)
        lines = [line for line in log_lines(gateway.program) if line["level"] not in {"info", "debug"}]
        assert [line for line in lines if line["msg"] not in OF_STALLS] == []


async def new_key(redis_url: str) -> str:
    """Returns a new API key."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url), "ways", "test")
    key, secret = api_keys.new_key(("embed", "jobs"))
    await api_keys.add(queue.connection("keys"), key)
    await queue.close()
    return secret


def field_of_key(way: Way) -> bytes:
    """Returns the header field with the API key."""
    return b"X-Api-Key: %b\r\n" % way.api_key.encode()


async def serves(way: Way) -> bool:
    """Whether a request over a way gets its vector."""
    answer = await way.exchange(whole(b'{"text": "a"}', 200).parts(ROUTES["fast path"] + field_of_key(way)))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.startswith(b"HTTP/1.1 200 ") and vector_bytes(json.loads(body)["embedding"]) == null_vector("a")


async def check(way: Way, name: str, parts: AsyncIterator[bytes], status: int) -> None:
    """Sends an attack over a way, and checks the answer: that of the gateway, or that of nginx."""
    answer = await way.exchange(parts)
    by_nginx = BY_NGINX.get(name) if way.tls is not None else None
    assert answer.startswith(b"HTTP/1.1 %d " % (by_nginx or status)), answer[:500]
    assert (b"<center>nginx" in answer) == (by_nginx is not None), answer[:500]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FIRST_LINES)
async def test_hostile_first_lines(ways: Ways, name: str, way: str) -> None:
    """A stranger whose first line is too long, or not of HTTP/1, is refused."""
    attack = FIRST_LINES[name]
    await check(ways[way], name, attack.parts(b""), attack.status)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("line", [b"GET /redbatch/livez", b"POST /redbatch/embed"], ids=["probe", "embed"])
@pytest.mark.parametrize("name", HEADS)
async def test_hostile_heads(ways: Ways, name: str, line: bytes, way: str) -> None:
    """A stranger whose head is over a limit, or ambiguous, is refused."""
    attack = HEADS[name]
    await check(ways[way], name, attack.parts(line + FIELDS), attack.status)


CASES = [(route, name, attack) for route in ROUTES for name, attack in (LINES if route == "lines" else BODIES).items()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_key", [True, False], ids=["with a key", "without a key"])
@pytest.mark.parametrize(("route", "name", "attack"), CASES, ids=[f"{route}, {name}" for route, name, _ in CASES])
async def test_hostile_bodies(ways: Ways, route: str, name: str, attack: Attack, way: str, *, with_key: bool) -> None:
    """A client with a key gets the error of its body; a stranger a 401, whatever the body is."""
    begin = ROUTES[route] + (field_of_key(ways[way]) if with_key else b"")
    await check(ways[way], name, attack.parts(begin), attack.status if with_key else 401)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "line", ["GET /redbatch/health", "POST /redbatch/embed", "POST /redbatch/jobs", "GET /redbatch/"]
)
async def test_no_other_path_is_a_route(ways: Ways, line: str, way: str) -> None:
    """A path with a line break at its end is unknown on both ways within the gateway, and needs a key."""
    for key, status in ((field_of_key(ways[way]), 404), (b"", 401)):
        begin = line.encode() + b"%0A" + JSON_FIELDS + key
        await check(ways[way], "a line break", whole(b'{"text": "a"}', status).parts(begin), status)


@pytest.mark.parametrize("way", WAYS)
async def test_the_largest_head_passes(ways: Ways, way: str) -> None:
    """A head within the limits of the gateway is served, and nginx has room for it."""
    query = b"?" + b"q" * (8 * 2**10 - len(b"/redbatch/livez?"))
    head = b"GET /redbatch/livez" + query + FIELDS + b"a: b\r\n" * 80 + b"b: " + b"x" * 50_000 + b"\r\n\r\n"
    await check(ways[way], "large", Attack(head, 200).parts(b""), 200)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sent", [b"", b"GET /redbatch/livez" + FIELDS], ids=["silent", "half a head"])
async def test_a_head_that_does_not_come(ways: Ways, sent: bytes, way: str) -> None:
    """A connection without a head is closed in time, without an answer."""
    started = time.monotonic()
    assert await ways[way].exchange(Attack(sent, 0).parts(b"")) == b""
    assert TIMEOUT_S / 2 <= time.monotonic() - started <= MAX_CLOSE_S
