"""The nginx configuration of docs/behind-a-proxy.md, as it stands there, in front of real gateways."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from api.dialects.request import MAX_TIMEOUT_MS
from api.http.auth import MAX_FAILURES
from api.settings import GatewaySettings
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, has_vectors
from tests.integration.gateway.http_ways import KEEPS, NEEDS_NGINX, PAGE, Way, documented_block, running_nginx
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.leaves_anything,
    pytest.mark.timeout(60),
    NEEDS_NGINX,
]

REMOVES = "proxy_pass http://redbatch/;"


@pytest.mark.parametrize("proxy_pass", [KEEPS, REMOVES])
async def test_gateways_behind_the_documented_nginx(cluster: GatewayCluster, tmp_path: Path, proxy_pass: str) -> None:
    """Requests, jobs, large bodies and errors pass, whether nginx keeps the prefix or removes it; both gateways serve.

    A body of 1.5 MB is over nginx's own default limit, and one of 3 MB gets the gateway's error.
    """
    settings = {"root_path": "/redbatch", "trusted_proxies": "127.0.0.1"}
    gateways = await asyncio.gather(*(cluster.start_gateway(**settings) for _ in range(2)))
    await cluster.start_worker()
    for gateway in gateways:
        await wait_until(lambda gateway=gateway: gateway.missing() == [], "a worker is ready")  # type: ignore[misc]
    ports = [each.port for each in gateways]
    async with running_nginx(tmp_path, ports, {KEEPS: proxy_pass}) as way:
        url = way.url
        for _ in range(4):
            assert has_vectors(plain_http.post(f"{url}/embed", json={"texts": ["a"]}), ["a"])
        assert all(each.metric("redbatch_requests_total") > 0 for each in gateways)
        large = ["x" * 100_000] * 15
        assert has_vectors(plain_http.post(f"{url}/embed", json={"texts": large}, timeout=30), large)
        refused = plain_http.post(f"{url}/embed", json={"texts": large * 2}, timeout=30)
        assert (refused.status_code, error_of(refused)["code"]) == (413, "too_large")
        job = plain_http.post(f"{url}/jobs", json={"texts": ["a"]}).json()
        status = plain_http.get(f"{url.removesuffix('/redbatch')}{job['status_url']}?wait=30", timeout=40)
        assert status.json()["status"] == "done"
        assert plain_http.get(f"{url}/openapi.json").json()["servers"] == [{"url": "/redbatch"}]
        assert plain_http.get(f"{url}/readyz?exclude=worker").status_code == 200


async def test_wrong_keys_count_for_the_client_of_nginx(cluster: GatewayCluster, tmp_path: Path) -> None:
    """A client is limited alone, also one that sends X-Forwarded-For itself: nginx appends its real address."""
    gateway = await cluster.start_gateway(root_path="/redbatch", auth="on", trusted_proxies="127.0.0.1")

    async def is_limited(address: str, guesses: int) -> bool:
        transport = httpx.AsyncHTTPTransport(local_address=address)
        async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=30) as client:
            for number in range(guesses):
                headers = {"authorization": "Bearer wrong.key", "x-forwarded-for": f"198.51.100.{number % 250}"}
                answer = await client.post(f"{url}/embed", json={"text": "a"}, headers=headers)
                if answer.status_code == 429:
                    return True
                assert answer.status_code == 401
        return False

    async with running_nginx(tmp_path, [gateway.port, gateway.port]) as way:
        url = way.url
        assert await is_limited("127.0.0.2", 20 * MAX_FAILURES)
        assert not await is_limited("127.0.0.3", MAX_FAILURES // 2)
        assert await is_limited("127.0.0.2", MAX_FAILURES * 3 // 4)  # more than are allowed again in a few seconds


async def test_headers_pass_and_connections_are_kept(tmp_path: Path) -> None:
    """What a client sends arrives: `Prefer: respond-async` too. Requests share a connection to the gateway."""
    heads: list[str] = []
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            try:
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            except asyncio.IncompleteReadError:
                writer.close()
                return
            writer.write(b"HTTP/1.1 202 Accepted\r\nLocation: /redbatch/jobs/1\r\nContent-Length: 0\r\n\r\n")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sent = {
        "prefer": "respond-async",
        "idempotency-key": "a",
        "x-timeout-ms": "1000",
        "x-forwarded-for": "198.51.100.1",
    }
    async with server, running_nginx(tmp_path, [port, port]) as way, plain_http.client() as client:
        for _ in range(4):
            accepted = await client.get(f"{way.url}/jobs", headers=sent)
            assert (accepted.status_code, accepted.headers["location"]) == (202, "/redbatch/jobs/1")
    for name in ("prefer", "idempotency-key", "x-timeout-ms"):
        assert all(f"\r\n{name}: {sent[name]}\r\n" in head for head in heads)
    assert all("\r\nx-forwarded-for: 198.51.100.1, 127.0.0.1\r\n" in head for head in heads)
    assert all(head.startswith("get /redbatch/jobs http/1.1") for head in heads)
    assert connections <= 2, "one for each server of the upstream"


BEGIN = b"POST /redbatch/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
REST = b'"text": "a"}'.ljust(99)


@asynccontextmanager
async def unfinished_requests(way: Way, number: int, source: str) -> AsyncIterator[None]:
    """Sends requests from an address whose bodies do not end until the end of the block."""

    async def parts() -> AsyncIterator[bytes]:
        yield BEGIN
        await asyncio.Event().wait()

    requests = [asyncio.create_task(way.exchange(parts(), source)) for _ in range(number)]
    try:
        yield
    finally:
        for each in requests:
            each.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


async def answer_to(way: Way, source: str) -> bytes:
    """Returns the answer to a request from an address."""

    async def parts() -> AsyncIterator[bytes]:
        yield BEGIN + REST

    return await way.exchange(parts(), source)


@pytest.mark.parametrize(
    ("trusted", "num_served", "code"), [("127.0.0.1", 12, b"no_worker"), ("", 10, b"too_many_connections")]
)
async def test_a_trusted_proxy_may_have_all_connections(
    cluster: GatewayCluster, tmp_path: Path, trusted: str, num_served: int, code: bytes
) -> None:
    """The share of an address does not hold for nginx, whose connections are those of many clients, if it is trusted.

    Otherwise the clients of nginx together have the share of one, and further ones are refused.
    """
    limits = {"max_connections": 40, "max_address_ratio": 0.25}
    gateway = await cluster.start_gateway(root_path="/redbatch", trusted_proxies=trusted, **limits)
    async with running_nginx(tmp_path, [gateway.port] * 2) as way, unfinished_requests(way, 12, "127.0.0.2"):
        await wait_until(lambda: gateway.metric("redbatch_connections") == num_served, "the share is in use")
        assert code in await answer_to(way, "127.0.0.3")


async def test_nginx_gives_each_client_its_share(cluster: GatewayCluster, tmp_path: Path) -> None:
    """A client with the maximum of requests gets a 429 from nginx, and another one an answer of the gateway."""
    gateway = await cluster.start_gateway(root_path="/redbatch", trusted_proxies="127.0.0.1")
    few = {"limit_conn addresses 4096;": "limit_conn addresses 5;"}
    async with running_nginx(tmp_path, [gateway.port] * 2, few) as way:
        async with unfinished_requests(way, 5, "127.0.0.2"):
            await wait_until(lambda: gateway.metric("redbatch_connections") == 5, "all are passed on")
            assert (await answer_to(way, "127.0.0.2")).startswith(b"HTTP/1.1 429 ")
            assert b"no_worker" in await answer_to(way, "127.0.0.3")

        async def is_served() -> bool:
            return b"no_worker" in await answer_to(way, "127.0.0.2")

        await wait_until(is_served, "requests that have ended do not count")


def test_the_times_and_sizes_of_the_block_fit_the_settings() -> None:
    """The limits of nginx are those of the gateway or above, and it closes idle connections first.

    Those of strangers, who have no key, are not above: the time of a head, and the share of an address.
    """
    block, settings = documented_block(), GatewaySettings()
    values = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)[sm]?;", block)}
    assert values["proxy_read_timeout"] > MAX_TIMEOUT_MS / 1000
    assert values["keepalive_timeout"] < settings.keep_alive_s
    assert values["client_max_body_size"] * 2**20 >= settings.max_job_body_bytes
    assert values["client_header_timeout"] == settings.head_timeout_s
    ((number, size),) = re.findall(r"large_client_header_buffers (\d+) (\d+)k;", block)
    assert int(size) * 2**10 >= max(settings.max_head_bytes, settings.max_url_bytes)
    assert int(number) >= 2, "a head that is a little too large is refused by the gateway, which says why"
    share = settings.connection_limits(settings.max_connections).max_per_address
    assert values["addresses"] == share
    assert f"{share:,} is the share" in PAGE
