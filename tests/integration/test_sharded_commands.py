"""`redbatch queue` and `dead` with shards: a real worker serves two Redis, of which one is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from api.dispatch.shards import HOLD_S
from redbatch.commands import app
from tests import plain_http
from tests.integration.test_dead import give_up
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]


@pytest_asyncio.fixture
async def sharded(queue_name: str, tmp_path: Path) -> AsyncIterator[ShardedCluster]:
    """Two Redis."""
    async with sharded_cluster(2, queue_name, tmp_path) as cluster:
        yield cluster


async def run(sharded: ShardedCluster, *words: str, user: str = "ops") -> Result:
    """Runs `redbatch` on all shards, in a thread, because the command runs an event loop."""
    variables = {
        "REDBATCH_REDIS_SHARDS": ",".join(as_user(each.url, user) for each in sharded.servers),
        "REDBATCH_REDIS_URL": None,
        "COLUMNS": "80",
    }
    return await asyncio.to_thread(CliRunner().invoke, app, words, env=variables)


async def read_state(sharded: ShardedCluster, *words: str) -> dict[str, Any]:
    """Returns the only queue that `queue --json` prints."""
    result = await run(sharded, "queue", "--json", *words)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


async def test_the_sum_and_each_shard_are_shown(sharded: ShardedCluster) -> None:
    """One worker is there once, with all that it did. A Redis that was killed is named; without any, it is an error."""
    gateway = await sharded.start_gateway()
    await sharded.start_worker()
    await wait_until_used([gateway], [0, 1])
    async with plain_http.client() as client:
        answers = []
        for i in range(60):
            answers.append(await client.post(f"{gateway.url}/embed", json={"text": f"text {i}"}))
            await asyncio.sleep(HOLD_S / 4)  # a gateway keeps to a shard for HOLD_S
    assert [each.status_code for each in answers] == [200] * 60

    async def has_all() -> bool:
        return bool((await read_state(sharded))["requests"] == 60)

    await wait_until(has_all, "the worker has reported all requests")
    state = await read_state(sharded)
    (worker,) = state["workers"]
    assert worker["state"] == "ready"
    requests = [each["requests"] for each in state["shards"]]
    assert (sum(requests), min(requests) > 0) == (60, True), requests
    assert [each["workers"] for each in state["shards"]] == [1, 1]

    await sharded.kill(1)
    result = await run(sharded, "queue")
    assert result.exit_code == 0
    assert f"127.0.0.1:{sharded.servers[1].port}/0 is left out: " in " ".join(result.output.split())
    for words in ((), ("--queue", state["queue"])):
        silent = await read_state(sharded, *words)
        assert [each["error"] is None for each in silent["shards"]] == [True, False]
        assert silent["requests"] <= requests[0]
    await sharded.kill(0)
    result = await run(sharded, "queue")
    assert result.exit_code == 1
    assert str(sharded.servers[0].port) in result.stderr


@pytest.mark.leaves_dead_letters
async def test_dead_letters_run_again_on_their_shards(sharded: ShardedCluster) -> None:
    """Those of all, oldest first, and one by its id; those that are answered are gone."""
    queue = sharded.cluster.queue
    for number in range(4):
        await give_up(sharded.servers[number % 2].url, queue, [f"text {number}"], 1)
    await sharded.start_worker()
    listed = await run(sharded, "dead", "list", "--json", "--queue", queue)
    ids = [json.loads(line)["id"] for line in listed.stdout.splitlines()]
    result = await run(sharded, "dead", "requeue", ids[0], "--queue", queue, user="admin")
    assert (result.exit_code, result.output) == (0, f"{ids[0]}: answered\n")
    result = await run(sharded, "dead", "requeue", "--all", "--queue", queue, user="admin")
    assert (result.exit_code, result.output.splitlines()) == (0, [f"{each}: answered" for each in ids[:0:-1]])
    listed = await run(sharded, "dead", "list", "--queue", queue)
    assert "0 dead letters" in listed.output


async def test_jobs_of_the_other_shards_are_listed(sharded: ShardedCluster) -> None:
    """While a Redis is away, the list says that its jobs are left out, and its jobs are out of reach."""
    gateway = await sharded.start_gateway()
    await sharded.start_worker(drain_grace_s=1)  # it may owe an answer to the Redis that is away
    await wait_until_used([gateway], [0, 1])
    ids: dict[bool, str] = {}
    async with plain_http.client() as client:
        while len(ids) < 2:
            job = (await client.post(f"{gateway.url}/jobs", json={"texts": ["a"]})).json()["id"]
            ids["@1." in job] = job
    await sharded.kill(1)
    result = await run(sharded, "jobs", "list", "--json")
    listed = [json.loads(line)["id"] for line in result.stdout.splitlines()]
    assert (result.exit_code, ids[False] in listed, ids[True] in listed) == (0, True, False)
    assert "the jobs of shard 1, " in result.stderr
    result = await run(sharded, "jobs", "show", ids[True])
    ports = [str(each.port) in result.stderr for each in sharded.servers]
    assert (result.exit_code, ports) == (1, [False, True])
    assert (await run(sharded, "jobs", "show", ids[False])).exit_code == 0
