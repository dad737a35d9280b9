"""`redbatch queue` with real gateways and workers: what they did is shown, for each queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis
from typer.testing import CliRunner, Result

from redbatch.commands import app
from shared.keys import Keys
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.leaks import remove
from tests.processes import Processes
from tests.users import as_user
from tests.waiting import wait_until

ECHO = "tests.integration.functions.function_models:Echo"
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Gateways and workers of this test, on the queue of this test."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


async def run_queue(cluster: GatewayCluster, *words: str) -> Result:
    """Runs `redbatch queue` in a thread, because the command runs an event loop."""
    target = ["--redis-url", as_user(cluster.redis_url, "ops")]
    return await asyncio.to_thread(CliRunner().invoke, app, ["queue", *words, *target])


async def states(cluster: GatewayCluster, *words: str) -> dict[str, dict[str, Any]]:
    """Returns what `queue --json` prints, by queue."""
    result = await run_queue(cluster, "--json", *words)
    assert result.exit_code == 0, result.stderr
    return {state["queue"]: state for state in map(json.loads, result.stdout.splitlines())}


async def test_answers_and_errors_of_all_workers_are_added_up(cluster: GatewayCluster) -> None:
    """Requests, batches, latencies and errors of two workers are shown together, without those of clients."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway = await cluster.start_gateway()
    await asyncio.gather(*(cluster.start_worker(ECHO) for _ in range(2)))
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 2, "the gateway sees the workers")
    for number in range(20):
        inputs = list(range(40)) if number == 0 else [number]  # 40 inputs are two entries of one request
        assert plain_http.post(f"{gateway.url}/predict", json={"inputs": inputs}).status_code == 200
    assert plain_http.post(f"{gateway.url}/predict", json={"input": "!refuse"}).status_code == 400
    assert plain_http.post(f"{gateway.url}/predict", json={"input": "!transform"}).status_code == 500

    async def shown() -> bool:
        state = (await states(cluster, "--queue", cluster.queue))[cluster.queue]
        return (state["requests"], state["errors"]) == (22, 1)

    await wait_until(shown, "all answers are shown")
    state = (await states(cluster))[cluster.queue]
    assert state["inputs_per_s"] > state["requests_per_s"]
    assert 1 <= state["batch_size"] <= 40
    assert 0 < state["p50_ms"] <= state["p99_ms"]
    assert len(state["workers"]) == 2


async def test_a_request_whose_first_input_is_invalid_counts(cluster: GatewayCluster) -> None:
    """The gateway answers that input itself; the worker that answers the second counts the request."""
    gateway = await cluster.start_gateway()
    await cluster.start_worker()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    body = {"texts": ["", "a"], "on_error": "null"}
    answer = plain_http.post(f"{gateway.url}/embed", json=body).json()
    assert ([each is None for each in answer["embeddings"]], answer["errors"][0]["index"]) == ([True, False], 0)

    async def shown() -> bool:
        requests: int = (await states(cluster))[cluster.queue]["requests"]
        return requests == 1

    await wait_until(shown, "the request is shown")


async def test_a_misspelt_queue_is_an_error(cluster: GatewayCluster) -> None:
    """An unknown queue is an error with the queues there are and the nearest one; a queue without workers is known."""
    gateway = await cluster.start_gateway()
    await cluster.start_worker()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    result = await run_queue(cluster, "--queue", f"{cluster.queue}x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"there is no queue {cluster.queue}x: the queues are " in result.stderr
    assert f"did you mean {cluster.queue}?" in result.stderr


@pytest.mark.leaves_anything
async def test_a_queue_that_no_worker_announced_is_shown_if_it_holds_something(cluster: GatewayCluster) -> None:
    """A job that waits for the first worker makes its queue known."""
    gateway = await cluster.start_gateway()
    assert (await run_queue(cluster, "--queue", cluster.queue)).exit_code == 1
    assert plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"]}).status_code == 202
    assert (await states(cluster, "--queue", cluster.queue))[cluster.queue]["workers"] == []


async def test_queues_are_listed_side_by_side(cluster: GatewayCluster) -> None:
    """Without --queue, all queues that workers announced are rows of one table, or lines of JSON."""
    other = f"{cluster.queue}-other"
    workers = await asyncio.gather(cluster.start_worker(), cluster.start_worker(queue=other))
    assert {cluster.queue, other} <= set(await states(cluster))
    result = await run_queue(cluster)
    for expected in (cluster.queue, other, "requests/s", "p99"):
        assert expected in result.stdout
    for each in workers:
        assert await each.stop() == 0
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        remove(client, Keys(other))


async def test_a_worker_that_was_killed_is_silent_and_then_gone(cluster: GatewayCluster) -> None:
    """Its row says for how long, until its heartbeat expires; one that has left has no row at once.

    The console of a gateway has the same state, in which it is silent for longer than it may be.
    """

    async def shown() -> str:
        return (await run_queue(cluster, "--queue", cluster.queue)).stdout

    async def shows(text: str, num_rows: int) -> bool:
        rows = [line for line in (await shown()).splitlines() if "null" in line]
        return len(rows) == num_rows and text in await shown()

    def in_console() -> dict[str, Any]:
        return next(each for each in console()["queues"] if each["queue"] == cluster.queue)

    def console() -> dict[str, Any]:
        state: dict[str, Any] = plain_http.get(f"{gateway.url}/console/state").json()
        return state

    def is_lost() -> bool:
        silent_after_s: float = console()["silent_after_s"]
        return [each["silent_s"] >= silent_after_s for each in in_console()["workers"]] == [True]

    gateway, killed, left = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(heartbeat_ttl_s=10), cluster.start_worker(heartbeat_ttl_s=10)
    )
    await wait_until(lambda: shows(" ready ", 2), "both are shown")
    assert await left.stop() == 0
    assert await shows(" ready ", 1)
    printed, state = (await states(cluster))[cluster.queue], in_console()
    assert list(printed) == list(state)
    assert [list(each) for each in printed["workers"]] == [list(each) for each in state["workers"]]
    assert printed["workers"][0]["worker"] == state["workers"][0]["worker"]
    killed.kill()
    await wait_until(is_lost, "it is lost in the console")
    await wait_until(lambda: shows("silent for", 1), "the other is silent")
    await wait_until(lambda: shows("no worker is alive", 0), "its heartbeat has expired")
