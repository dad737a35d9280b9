"""The console in Chromium: what it shows of a cluster, of hostile names, and of what does not answer."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared import api_keys, consumer
from shared.messages import EMBED, Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.browser.browser import Browser, started_browser
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.leaves_anything]

HOSTILE = {
    "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>": "<script>alert(2)</script>",
    "gpu\u202e3-txet": "gpu\\u202e3-txet",
    "a\x00b\x1b[31mred\n": "a\\u0000b\\u001b[31mred\\u000a",
    "${alert(3)}": "${alert(3)}",
}
"""Names of workers, and how the console shows them."""

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
MIN_CONTRAST = 4.5
"""Of text and its background, by WCAG 2.2, level AA."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests."""
    with started_browser() as browser:
        yield browser


@pytest_asyncio.fixture
async def cluster(queue_name: str, tmp_path: Path) -> AsyncIterator[GatewayCluster]:
    """A cluster with a separate Redis, so that the console shows nothing else."""
    with Server() as server:
        async with Processes(tmp_path) as processes:
            yield GatewayCluster(processes, server.url, queue_name)


def connections_of(cluster: GatewayCluster) -> QueueConnections:
    """Returns connections to the queue."""
    return QueueConnections(QueueSettings(redis_url=cluster.redis_url), cluster.queue, "test")


async def in_thread(browser: Browser, *command: str) -> Any:  # noqa: ANN401 - any JSON value
    """Sends a command to the browser while the event loop goes on."""
    return await asyncio.to_thread(browser, *command)


async def wait_for_status(browser: Browser, text: str) -> None:
    """Waits until the line of status has a text."""
    await in_thread(browser, "wait", f"document.querySelector('#status').textContent.includes({json.dumps(text)})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_names_are_text_and_can_be_read(cluster: GatewayCluster, browser: Browser, scheme: str) -> None:
    """HTML, scripts and control characters of workers are shown as such; each text stands out from its background."""
    gateway = await cluster.start_gateway()
    connections = connections_of(cluster)
    worker = connections.connection("worker")
    for name in HOSTILE:
        beat = Heartbeat(name, "h", 1, name, name, 3, "ready", 9.0, 1, 1, 0, ops=(EMBED,), revision=name)
        beat = replace(beat, failing="<i>ValueError</i>" if "$" in name else "")
        await consumer.heartbeat(worker, connections.keys, beat, 60_000)
    await connections.close()
    await in_thread(browser, "open", f"{gateway.url}/console", scheme)
    await in_thread(browser, "wait", f"document.querySelectorAll('#workers tr').length === {len(HOSTILE)}")
    script = "[...document.querySelectorAll('#workers th bdi')].map((each) => each.textContent)"
    assert sorted(await in_thread(browser, "evaluate", script)) == sorted(HOSTILE.values())
    assert await in_thread(browser, "evaluate", "document.querySelectorAll('td *:not(bdi), td script').length") == 0
    await wait_for_status(browser, "workers lost")  # these workers send no second heartbeat
    assert float(await in_thread(browser, "evaluate", CONTRAST)) >= MIN_CONTRAST
    assert await in_thread(browser, "events") == []


async def test_a_killed_worker_is_lost_in_words_and_colour(cluster: GatewayCluster, browser: Browser) -> None:
    """Three seconds after its last heartbeat, also when Redis has forgotten it; the other one stays ready."""
    gateway, killed, _ = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(heartbeat_ttl_s=4), cluster.start_worker()
    )
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 2, "the gateway sees both")
    await in_thread(browser, "open", f"{gateway.url}/console", "light")
    await wait_for_status(browser, "Live: 1 queue, 2 workers ready")
    killed.kill()
    await wait_for_status(browser, "1 worker lost")
    rows = "[...document.querySelectorAll('#workers td.bad')].map((each) => each.textContent)"
    assert await in_thread(browser, "evaluate", rows) == ["lost: no heartbeat for 3 s; it was ready"]
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "Redis has forgotten it")
    (row,) = await in_thread(browser, "evaluate", rows)
    assert row.startswith("lost: no heartbeat for ")
    assert await in_thread(browser, "evaluate", "document.querySelectorAll('#workers tr').length") == 2
    assert await in_thread(browser, "events") == []


async def test_it_says_that_its_numbers_are_old(cluster: GatewayCluster, browser: Browser) -> None:
    """While the gateway hangs; after that it goes on. Its workers are not lost, as nothing is known of them."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "the gateway sees the worker")
    await in_thread(browser, "open", f"{gateway.url}/console", "dark")
    await wait_for_status(browser, "Live: 1 queue, 1 worker ready")
    gateway.program.signal(signal.SIGSTOP)
    try:
        await wait_for_status(browser, "these numbers are old")
        assert await in_thread(browser, "evaluate", "document.querySelectorAll('#workers td.bad').length") == 0
    finally:
        gateway.program.signal(signal.SIGCONT)
    await wait_for_status(browser, "Live: 1 queue, 1 worker ready")


async def test_it_asks_for_a_key(cluster: GatewayCluster, browser: Browser) -> None:
    """By keyboard alone: it refuses a wrong key and one without the scope, in words, and sets no cookie."""
    connections = connections_of(cluster)
    keys = {scope: api_keys.new_key((scope,)) for scope in ("embed", "admin")}
    for key, _ in keys.values():
        await api_keys.add(connections.connection("keys"), key)
    await connections.close()
    gateway = await cluster.start_gateway(auth="on")
    await in_thread(browser, "open", f"{gateway.url}/console", "dark")
    await wait_for_status(browser, "needs an API key with the scope admin (401)")
    for entered, expected in (
        ("wrong", "not accepted (401)"),
        ("böse", "This is no API key"),
        (keys["embed"][1], "lacks the scope admin"),
        (keys["admin"][1], "Live: no worker is ready"),
    ):
        await in_thread(browser, "enter", entered)
        await wait_for_status(browser, expected)
    assert await in_thread(browser, "evaluate", "document.querySelector('#key-form').hidden")
    kept = await in_thread(browser, "evaluate", "[document.cookie, localStorage.length, location.search]")
    assert kept == ["", 0, ""]
