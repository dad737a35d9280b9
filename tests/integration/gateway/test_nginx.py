"""The nginx configuration of docs/behind-a-proxy.md, as it stands there, in front of real gateways."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from api.dialects.request import MAX_TIMEOUT_MS
from api.http.auth import MAX_FAILURES
from api.settings import GatewaySettings
from redbatch.up.local_redis import free_port
from shared.process.parent_death import wrap_command
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, has_vectors
from tests.nginx import nginx, write_configuration
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.leaves_anything,
    pytest.mark.timeout(60),
    pytest.mark.skipif(nginx() is None, reason="nginx is not installed"),
]

PAGE = (Path(__file__).parents[3] / "docs" / "behind-a-proxy.md").read_text(encoding="utf-8")
KEEPS, REMOVES = "proxy_pass http://redbatch;", "proxy_pass http://redbatch/;"


def documented_block() -> str:
    """Returns the block of the page."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert KEEPS in block
    return str(block)


@asynccontextmanager
async def running_nginx(folder: Path, ports: list[int], proxy_pass: str = KEEPS) -> AsyncIterator[str]:
    """Runs nginx with the block, for the gateways on these ports; yields the URL of the prefix."""
    port = free_port()
    block = documented_block().replace(KEEPS, proxy_pass).replace("listen 80;", f"listen 127.0.0.1:{port};")
    for documented, actual in zip(("127.0.0.1:8080", "127.0.0.1:8081"), ports, strict=True):
        block = block.replace(documented, f"127.0.0.1:{actual}")
    write_configuration(folder, block)
    command = [nginx() or "", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(wrap_command(command, signal.SIGKILL))
    try:
        await wait_until(lambda: process.poll() is not None or (folder / "nginx.pid").exists(), "nginx runs")
        assert process.poll() is None
        yield f"http://127.0.0.1:{port}/redbatch"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


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
    async with running_nginx(tmp_path, [each.port for each in gateways], proxy_pass) as url:
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

    async with running_nginx(tmp_path, [gateway.port, gateway.port]) as url:
        assert await is_limited("127.0.0.2", 20 * MAX_FAILURES)
        assert not await is_limited("127.0.0.3", MAX_FAILURES // 2)
        assert await is_limited("127.0.0.2", MAX_FAILURES // 2)


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
    async with server, running_nginx(tmp_path, [port, port]) as url, plain_http.client() as client:
        for _ in range(4):
            accepted = await client.get(f"{url}/jobs", headers=sent)
            assert (accepted.status_code, accepted.headers["location"]) == (202, "/redbatch/jobs/1")
    for name in ("prefer", "idempotency-key", "x-timeout-ms"):
        assert all(f"\r\n{name}: {sent[name]}\r\n" in head for head in heads)
    assert all("\r\nx-forwarded-for: 198.51.100.1, 127.0.0.1\r\n" in head for head in heads)
    assert all(head.startswith("get /redbatch/jobs http/1.1") for head in heads)
    assert connections <= 2, "one for each server of the upstream"


def test_the_times_and_sizes_of_the_block_fit_the_settings() -> None:
    """The limits of nginx are those of the gateway or above, and it closes idle connections first."""
    block, settings = documented_block(), GatewaySettings()
    values = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)[sm]?;", block)}
    assert values["proxy_read_timeout"] > MAX_TIMEOUT_MS / 1000
    assert values["keepalive_timeout"] < settings.keep_alive_s
    assert values["client_max_body_size"] * 2**20 >= settings.max_job_body_bytes
