"""A class that does not load any more when its engine or worker starts again: clients and the operator learn it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from redbatch.queue.command import show_queues
from redbatch.queue_target import QueueTarget
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

CLASS = """import os, time

class Model:
    def transform(self, values):
        time.sleep(values[0] if isinstance(values[0], float) else 0)
        return [os.getpid() for _ in values]
"""
BROKEN = "import nowhere_at_all\n"


class Fixture:
    """A gateway, and a class in a file that the test changes."""

    def __init__(self, cluster: GatewayCluster, folder: Path) -> None:
        self.cluster, self.file = cluster, folder / "changing.py"
        cluster.environment["PYTHONPATH"] += f":{folder}"
        self.file.write_text(CLASS)

    async def start_failing_worker(self) -> None:
        """Starts a worker as a supervisor does after each end, and waits until it has failed."""
        program = await self.cluster.processes.start("worker", "gpuworker", self.cluster.env(model="changing:Model"))
        assert await program.wait_until_ended(timeout_s=60) == 2

    async def start_worker(self) -> Program:
        """Starts a worker that serves the class."""
        return await self.cluster.start_worker("changing:Model")

    async def show_queue(self, *, in_json: bool = False) -> None:
        """Prints what `redbatch queue` does."""
        target = QueueTarget(self.cluster.redis_url, self.cluster.queue)
        assert await asyncio.to_thread(show_queues, target, in_json=in_json, watch=False) == 0


def post(gateway: GatewayProcess, path: str, body: object) -> httpx.Response:
    """Sends a request."""
    return plain_http.post(f"{gateway.url}{path}", json=body, timeout=60)


def workers_of(output: str) -> list[dict[str, Any]]:
    """Returns the workers in the JSON that `redbatch queue` has printed; other tests may log late."""
    [line] = [each for each in output.splitlines() if each.startswith("{")]
    workers: list[dict[str, Any]] = json.loads(line)["workers"]
    return workers


async def test_a_class_that_no_longer_loads_is_an_error_at_once(
    cluster: GatewayCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests that wait, new ones and jobs get 503 with the reason, but no path; a mended class serves at once."""
    fixture = Fixture(cluster, tmp_path)
    gateway, worker = await asyncio.gather(cluster.start_gateway(), fixture.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    pid = post(gateway, "/predict", {"input": 1}).json()["output"]
    fixture.file.write_text(BROKEN)
    waiting = asyncio.create_task(asyncio.to_thread(post, gateway, "/predict", {"input": 60.0, "timeout_ms": 60_000}))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert await worker.wait_until_ended(timeout_s=40) == 2
    answers = [await waiting]
    assert time.monotonic() - began < 45, "long before the deadline"
    await fixture.start_failing_worker()
    answers += [await asyncio.to_thread(post, gateway, "/predict", {"input": 1})]
    answers += [await asyncio.to_thread(post, gateway, "/jobs", {"inputs": [1]})]
    for answer in answers:
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (503, "model_failing")
        assert "could not load it. `redbatch queue`" in error["message"]
        assert "nowhere_at_all" not in error["message"]
        assert int(answer.headers["retry-after"]) >= 1
    assert gateway.missing() == ["worker"]
    await fixture.show_queue()
    shown = " ".join(capsys.readouterr().out.split())
    assert "-failed: its model does not load: model changing:Model: there is no module nowhere_at_all" in shown
    await fixture.show_queue(in_json=True)
    [row] = workers_of(capsys.readouterr().out)
    assert "nowhere_at_all" in row["failing"], "one row for all attempts"
    fixture.file.write_text(CLASS)
    await fixture.start_worker()
    await wait_until(lambda: post(gateway, "/predict", {"input": 1}).status_code == 200, "the mended class serves")
    await fixture.show_queue(in_json=True)
    assert [row["state"] for row in workers_of(capsys.readouterr().out)] == ["ready"]


async def test_no_job_is_accepted_right_after_a_class_has_not_loaded(cluster: GatewayCluster, tmp_path: Path) -> None:
    """As soon as its first worker has ended, though the gateway has just seen that load the class."""
    fixture = Fixture(cluster, tmp_path)
    fixture.file.write_text("import time\n\ntime.sleep(2)\n" + BROKEN)
    gateway = await cluster.start_gateway()
    await fixture.start_failing_worker()
    answer = await asyncio.to_thread(post, gateway, "/jobs", {"inputs": [1]})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "model_failing")
