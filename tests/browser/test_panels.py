"""The further panels of the console in Chromium: the last minutes, tenants, and leases of GPUs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shared import consumer, usage
from shared.keys import PoolKeys
from shared.messages import EMBED, Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.usage_counts import Usage, UsageKey
from tests import plain_http
from tests.browser.browser import Browser, check_in_both_schemes
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.leaves_anything]

ECHO = "tests.integration.functions.function_models:Echo"
LINE_PIXELS = Path(__file__).with_name("line_pixels.js").read_text(encoding="utf-8")
CHARTS = ("requests-chart", "p50-chart", "p99-chart", "failed-chart", "errors-chart")
MIN_PIXELS = 6


HOSTILE = {
    "<img/src=x/onerror=alert(1)>": "<img/src=x/onerror=alert(1)>",
    "web\u202egpj": "web\\u202egpj",
}
"""Names of tenants in Redis, and how the console shows them."""


class Panels(NamedTuple):
    """The URL of a gateway, and its cluster."""

    url: str
    cluster: GatewayCluster


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panels]:
    """A gateway with a separate Redis, and a worker that fails on some inputs."""
    with Server() as server:
        cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("panels")), server.url, "echo")

        async def start() -> GatewayProcess:
            gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(ECHO))
            await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "the gateway sees the worker")
            return gateway

        with shared_gateway(cluster, start) as gateway:
            yield Panels(gateway.url, cluster)


def rows(browser: Browser, table: str) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the texts of a table's cells, by row."""
    cells = "[...row.cells].map((cell) => cell.textContent)"
    return browser("evaluate", f"[...document.querySelectorAll('#{table} tr')].map((row) => {cells})")


def test_the_last_minutes_are_drawn_and_written(panels: Panels, browser: Browser) -> None:
    """A page that opens later has them: lines with pixels of their colour, and the same numbers as texts."""
    for sent in ("a", "!transform", "b", "!transform"):
        plain_http.post(f"{panels.url}/predict", json={"input": sent})
    for _ in range(3):
        plain_http.post(f"{panels.url}/predict", json={"unknown": 1})
    for scheme in ("light", "dark"):
        browser("open", f"{panels.url}/console", scheme)
        browser("wait", "document.querySelector('#history tr')?.lastElementChild.textContent === '2'")
        assert rows(browser, "errors") == [["input_failed", "2", "2"], ["invalid_request", "3", "3"]]
        ((name, _, rate, _, p50, _, p99, _, failed),) = rows(browser, "history")
        assert (name, failed) == ("echo", "2")
        assert float(rate) > 0
        assert p50.endswith("s")
        assert p99.endswith("s")
        for chart in CHARTS:
            browser("wait", f"{LINE_PIXELS.replace('CHART', f'#{chart}')} >= {MIN_PIXELS}")  # a line has two samples
            assert browser.text(f"#{chart} .readout").startswith("now: ")
            label = browser("evaluate", f"document.querySelector('#{chart} .plot').ariaLabel")
            assert ("input_failed " if chart == "errors-chart" else "echo ") in label
        assert browser.text("#errors-legend").split() == ["input_failed", "invalid_request"]
        lines = "[...document.querySelectorAll('#errors-legend line')]"
        dashes = browser("evaluate", f"{lines}.map((each) => each.getAttribute('stroke-dasharray'))")
        assert len(set(dashes)) == 2
        assert browser("events") == []


def connections_of(cluster: GatewayCluster) -> QueueConnections:
    """Returns connections to the queue."""
    return QueueConnections(QueueSettings(redis_url=cluster.redis_url), cluster.queue, "test")


async def test_tenants_are_text_with_what_they_used(panels: Panels, browser: Browser) -> None:
    """The largest first; a name that another process wrote to Redis is shown as it is, and runs nothing."""
    connections = connections_of(panels.cluster)
    counts = {UsageKey(name, "echo", EMBED): Usage(3, 1, 2, 70, 900 + len(name), 5) for name in HOSTILE}
    await usage.add(connections.connection("usage"), "test", usage.UsageBatch(1, 0, counts))
    await connections.close()
    await asyncio.to_thread(browser, "open", f"{panels.url}/console", "light")
    await asyncio.to_thread(browser, "wait", "document.querySelectorAll('#tenants tr').length >= 2")
    first, second, *_ = rows(browser, "tenants")  # of the others, each has fewer tokens
    assert [first[0], second[0]] == list(HOSTILE.values())
    share = first.pop(7)
    assert first[1:] == ["3", "1", "2", "70", "928", "5", "-", "none", "1"]
    assert share.endswith(" %")
    assert 0 < float(share[:-2]) <= 100
    assert browser("evaluate", "document.querySelectorAll('#tenants *:not(tr, th, td, bdi)').length") == 0
    assert "by tokens" in browser.text("#tenants-note")
    assert browser("events") == []


async def test_leases_are_shown_while_there_are_any(panels: Panels, browser: Browser) -> None:
    """The panel appears with the first worker that shares a GPU; a holder without a heartbeat stands out."""
    await asyncio.to_thread(browser, "open", f"{panels.url}/console", "dark")
    await asyncio.to_thread(browser, "wait", "!document.querySelector('#history-section').hidden")
    assert browser("evaluate", "document.querySelector('#leases-section').hidden")
    pool = PoolKeys("<i>node</i>")
    connections = connections_of(panels.cluster)
    connection, slots = connections.connection("worker"), ("0.0", "1.0", "2.0")
    beat = Heartbeat("first", "h", 1, "cuda:0", "null", 3, "ready", 9.0, 1, 1, 0, gpu_pool=pool.name, gpu_slots=slots)
    for name, state in (("first", "ready"), ("<b>second</b>", "standby")):
        await consumer.heartbeat(connection, connections.keys, replace(beat, worker=name, state=state), 60_000)
    for slot, holder in (("0.0", "first:5f 41"), ("2.0", "dead:60 42")):
        await connection.call("SET", pool.slot(slot), holder, "PX", 60_000)
    await connections.close()
    await asyncio.to_thread(browser, "wait", "document.querySelectorAll('#leases tr').length === 4")
    shown = rows(browser, "leases")
    assert [(slot, state, worker, fence) for slot, state, worker, *_, fence in shown] == [
        ("<i>node</i> 0.0", "held", "first", "41"),
        ("<i>node</i> 1.0", "free", "-", "-"),
        ("<i>node</i> 2.0", "held by a worker without a heartbeat", "dead", "42"),
        ("<i>node</i> 0.0, 1.0, 2.0", "waiting", "<b>second</b>", "-"),
    ]
    assert not browser("evaluate", "document.querySelector('#leases-section').hidden")
    assert browser("evaluate", "document.querySelectorAll('#leases *:not(tr, th, td, bdi)').length") == 0
    browser("evaluate", "document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await check_in_both_schemes(browser)
    assert browser("events") == []


async def test_memory_is_shown(panels: Panels, browser: Browser) -> None:
    """That of the model's process, and that in use on a GPU; an older worker reports neither."""
    connections = connections_of(panels.cluster)
    memory: dict[str, Any] = {"gpu_memory_bytes": 80 * 2**30, "gpu_used_bytes": 3 * 2**30, "memory_bytes": 3 * 2**29}
    beat = Heartbeat("m-full", "h", 1, "cuda:0", "null", 3, "ready", 9.0, 1, 1, 0, **memory)
    fewer: dict[str, dict[str, Any]] = {
        "m-older": {"gpu_used_bytes": 0, "memory_bytes": 0},
        "m-none": dict.fromkeys(memory, 0),
    }
    for each in (beat, *(replace(beat, worker=name, **fields) for name, fields in fewer.items())):
        await consumer.heartbeat(connections.connection("worker"), connections.keys, each, 60_000)
    await connections.close()
    await asyncio.to_thread(browser, "open", f"{panels.url}/console", "dark")
    is_measured = "(row) => !row.textContent.startsWith('m-') && /\\d [MG]iB/.test(row.textContent)"
    table = "document.querySelector('#workers')"
    await asyncio.to_thread(browser, "wait", f"{table}.textContent.includes('m-older')")
    await asyncio.to_thread(browser, "wait", f"[...{table}.rows].some({is_measured})")
    shown = {worker: memory for worker, *_, memory, _, _, _, _ in rows(browser, "workers")}
    assert {name: text for name, text in shown.items() if name.startswith("m-")} == {
        "m-full": "GPU 3.0 GiB of 80.0 GiB; 1.5 GiB",
        "m-older": "GPU 80.0 GiB",
        "m-none": "-",
    }
    measured = [text for text in shown.values() if re.fullmatch(r"[1-9]\d+ MiB|\d\.\d GiB", text)]
    assert len(measured) == 1, shown  # that of the one real worker
