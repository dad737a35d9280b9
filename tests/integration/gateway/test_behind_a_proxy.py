"""A gateway behind a proxy: a prefix of all paths, and the address of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from api.http.auth import MAX_FAILURES
from api.pages.routes import PAGE_PATHS
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_anything, pytest.mark.timeout(60)]

PREFIX = "/ai/embeddings"


@pytest.mark.parametrize("prefix", [PREFIX, ""], ids=["proxy keeps the prefix", "proxy removes the prefix"])
async def test_all_paths_work_below_a_prefix(cluster: GatewayCluster, prefix: str) -> None:
    """Requests, jobs, models and errors work alike, and paths in answers have the prefix that clients need."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(root_path=PREFIX), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    url = f"{gateway.url}{prefix}"
    assert has_vectors(plain_http.post(f"{url}/embed", json={"texts": ["a"]}), ["a"])
    openai = plain_http.post(f"{url}/v1/embeddings", json={"input": "a", "model": cluster.queue})
    assert openai.status_code == 200
    for path in (
        "/health",
        "/livez",
        "/readyz",
        "/ping",
        "/",
        "",
        "/info",
        "/v1/models",
        f"/v1/models/{cluster.queue}",
    ):
        assert plain_http.get(f"{url}{path}").status_code == 200, path
    unknown = plain_http.get(f"{url}/v1/nothing")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "invalid_request_error")
    assert error_of(plain_http.get(f"{url}/nothing"))["message"].startswith("GET /nothing: ")
    description = plain_http.get(f"{url}/openapi.json").json()
    assert description["servers"] == [{"url": PREFIX}]
    assert "/embed" in description["paths"]
    assert f"{PREFIX}/openapi.json" in plain_http.get(f"{url}/docs").text

    job = plain_http.post(f"{url}/jobs", json={"texts": ["a"] * 3}).json()
    assert job["status_url"] == f"{PREFIX}/jobs/{job['id']}"
    assert job["result_url"] == f"{PREFIX}/jobs/{job['id']}/result"
    path = job["status_url"] if prefix else job["status_url"].removeprefix(PREFIX)
    assert plain_http.get(f"{gateway.url}{path}?wait=30").json()["status"] == "done"
    page = plain_http.get(f"{url}/jobs/{job['id']}/result?limit=2").json()
    assert page["next_url"] == f"{PREFIX}/jobs/{job['id']}/result?offset=2&limit=2"


async def test_only_whole_segments_are_the_prefix(cluster: GatewayCluster) -> None:
    """A path that only begins with the same letters is another path."""
    gateway = await cluster.start_gateway(root_path="/ai")
    assert plain_http.get(f"{gateway.url}/ai/livez").status_code == 200
    assert plain_http.get(f"{gateway.url}/aid/livez").status_code == 404
    assert plain_http.get(f"{gateway.url}/ai/ai/livez").status_code == 404


async def test_keys_are_required_below_a_prefix(cluster: GatewayCluster) -> None:
    """The prefix opens nothing: only probes and pages need no key."""
    gateway = await cluster.start_gateway(root_path=PREFIX, auth="on")
    for url in (gateway.url, f"{gateway.url}{PREFIX}"):
        for path in ("/livez", *PAGE_PATHS):
            assert plain_http.get(f"{url}{path}").status_code == 200, path
        for path in ("/v1/models", "/docs/x", "/jobs/a"):
            assert plain_http.get(f"{url}{path}").status_code == 401, path
        assert plain_http.post(f"{url}/embed", json={"text": "a"}).status_code == 401


def is_limited(gateway: GatewayProcess, forwarded_for: Callable[[int], str], guesses: int) -> bool:
    """Whether one of up to `guesses` wrong keys gets a 429; each has an X-Forwarded-For, by its number."""
    for number in range(guesses):
        headers = {"authorization": "Bearer wrong.key", "x-forwarded-for": forwarded_for(number)}
        status = plain_http.post(f"{gateway.url}/embed", json={"text": "a"}, headers=headers).status_code
        if status == 429:
            return True
        assert status == 401
    return False


MANY = 20 * MAX_FAILURES
"""Enough to be limited, however slow this machine is: two further guesses are allowed per second."""

FEW = MAX_FAILURES * 3 // 4
"""Not enough for an address that has sent none before, and more than are allowed again in a few seconds."""


async def test_guesses_of_keys_count_for_the_client_behind_a_trusted_proxy(cluster: GatewayCluster) -> None:
    """Each client behind the proxy is limited alone; one that sends X-Forwarded-For itself is still recognized.

    A proxy appends the address of its client, so the last address that is no proxy's is the client's.
    """
    trusted = "127.0.0.0/8, 10.1.0.0/16, fd00::/8"
    gateway = await cluster.start_gateway(auth="on", trusted_proxies=trusted)
    assert is_limited(gateway, lambda _: "203.0.113.1", MANY)
    assert not is_limited(gateway, lambda _: "203.0.113.2", FEW)
    assert is_limited(gateway, lambda _: "203.0.113.1, 10.1.2.3", FEW), "through a second proxy"
    assert is_limited(gateway, lambda number: f"198.51.100.{number % 250}, 203.0.113.3", MANY), "a spoofed address"
    assert is_limited(gateway, lambda _: "2001:db8::1", MANY)
    assert is_limited(gateway, lambda _: "[2001:db8::1]:1234, fd00::2", FEW)
    assert not is_limited(gateway, lambda _: "2001:db8::2", FEW)


@pytest.mark.parametrize("trusted", [None, "203.0.113.0/24"], ids=["no proxy trusted", "another proxy trusted"])
async def test_nobody_else_may_choose_the_address(cluster: GatewayCluster, trusted: str | None) -> None:
    """By default, and if the connection does not come from a trusted proxy, X-Forwarded-For has no effect."""
    gateway = await cluster.start_gateway(auth="on", trusted_proxies=trusted)
    assert is_limited(gateway, lambda number: f"198.51.100.{number % 250}", MANY)
