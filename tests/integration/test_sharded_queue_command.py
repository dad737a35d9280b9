"""`redbatch queue` with shards: a real worker serves two Redis, of which one is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from redbatch.commands import app
from tests import plain_http
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]


@pytest_asyncio.fixture
async def sharded(queue_name: str, tmp_path: Path) -> AsyncIterator[ShardedCluster]:
    """Two Redis."""
    async with sharded_cluster(2, queue_name, tmp_path) as cluster:
        yield cluster


async def run_queue(sharded: ShardedCluster, *words: str) -> Result:
    """Runs `redbatch queue` on all shards, in a thread, because the command runs an event loop."""
    variables = {
        "REDBATCH_REDIS_SHARDS": ",".join(as_user(each.url, "ops") for each in sharded.servers),
        "REDBATCH_REDIS_URL": None,
        "COLUMNS": "80",
    }
    return await asyncio.to_thread(CliRunner().invoke, app, ["queue", *words], env=variables)


async def read_state(sharded: ShardedCluster, *words: str) -> dict[str, Any]:
    """Returns the only queue that `queue --json` prints."""
    result = await run_queue(sharded, "--json", *words)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


async def test_the_sum_and_each_shard_are_shown(sharded: ShardedCluster) -> None:
    """One worker is there once, with all that it did. A Redis that was killed is named; without any, it is an error."""
    gateway = await sharded.start_gateway()
    await sharded.start_worker()
    await wait_until_used([gateway], [0, 1])
    async with plain_http.client() as client:
        calls = (client.post(f"{gateway.url}/embed", json={"text": f"text {number}"}) for number in range(60))
        answers = await asyncio.gather(*calls)
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
    result = await run_queue(sharded)
    assert result.exit_code == 0
    assert f"127.0.0.1:{sharded.servers[1].port}/0 does not answer: " in " ".join(result.output.split())
    for words in ((), ("--queue", state["queue"])):
        silent = await read_state(sharded, *words)
        assert [each["error"] is None for each in silent["shards"]] == [True, False]
        assert silent["requests"] <= requests[0]
    await sharded.kill(0)
    result = await run_queue(sharded)
    assert result.exit_code == 1
    assert str(sharded.servers[0].port) in result.stderr
