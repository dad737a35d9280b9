"""`make screenshots`: pictures of the console for docs/operations.md, in light and dark.

They show a real cluster under load: two workers of the bundled model, one of which is killed, a simulated reranker, a
job in the lane `bulk`, and a request from the page.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench.machine import ROOT
from tests import plain_http
from tests.browser.browser import Browser, in_thread, started_browser, wait_for_status, wait_for_text
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.processes import Processes, Program
from tests.servers import Server
from tests.waiting import wait_until

FOLDER = ROOT / "docs" / "images"
RERANKER = "simulated:base_ms=5,item_ms=3,labels=1"
LOADED_S = 30.0
"""How long requests run before a worker is killed, so that rates and charts have something to show."""

JOB_TEXTS = 20_000
SIZE = ("1480", "900")
"""Of the window, in pixels: the widest table fits."""


async def start(cluster: GatewayCluster) -> tuple[GatewayProcess, Program]:
    """Starts a gateway, three workers and a load; returns the gateway and the worker to kill."""
    gateway, _, killed, _ = await asyncio.gather(
        cluster.start_gateway(all_queues=True),
        cluster.start_worker("minilm", worker_id="gpu-1"),
        cluster.start_worker("minilm", worker_id="gpu-2", heartbeat_ttl_s=60),
        cluster.start_worker(RERANKER, worker_id="gpu-3", queue="reranker"),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway is ready")
    load = f"redbatch bench {gateway.url} --rate 20 --duration 600s --mix short"
    await cluster.processes.start("load", load, {})
    job = {"texts": [f"the text with number {number}" for number in range(JOB_TEXTS)]}
    assert plain_http.post(f"{gateway.url}/jobs", json=job, timeout=60).status_code == 202
    return gateway, killed


async def show(browser: Browser, gateway: GatewayProcess, killed: Program) -> None:
    """Opens the console, sends a request from it, and waits until it shows the loss of a worker."""
    await in_thread(browser, "open", f"{gateway.url}/console", "light")
    await in_thread(browser, "resize", *SIZE)
    await wait_for_status(browser, "3 workers ready")
    await asyncio.sleep(LOADED_S)
    await in_thread(browser, "press", "#try-form button", "Enter")
    await wait_for_text(browser, "#try-status", "200 in ")
    killed.kill()
    await wait_for_status(browser, "1 worker lost")


async def main() -> None:
    """Writes the pictures."""
    with tempfile.TemporaryDirectory() as folder, Server() as server, started_browser() as browser:
        async with Processes(Path(folder)) as processes:
            gateway, killed = await start(GatewayCluster(processes, server.url, "minilm"))
            await show(browser, gateway, killed)
            for scheme in ("light", "dark"):
                await in_thread(browser, "scheme", scheme)
                await in_thread(browser, "screenshot", str(FOLDER / f"console-{scheme}.png"))


if __name__ == "__main__":
    asyncio.run(main())
