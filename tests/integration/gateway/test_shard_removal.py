"""What a shard still has when it is taken away, and the commands of docs/redis.md that empty it before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from redbatch.commands import app
from tests.integration.gateway.gateway_cluster import error_of
from tests.integration.gateway.job_client import JobClient
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def sharded(queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ShardedCluster]:
    """Two Redis with a shard each, without processes."""
    async with sharded_cluster(2, queue_name, tmp_path_factory.mktemp("shards")) as cluster:
        yield cluster


async def run(sharded: ShardedCluster, num_shards: int, *words: str) -> Result:
    """Runs `redbatch` on the last Redis alone, or on all."""
    urls = [as_user(each.url, "admin") for each in sharded.servers]
    env = {"REDBATCH_REDIS_URL": urls[1]} if num_shards == 1 else {"REDBATCH_REDIS_SHARDS": ",".join(urls)}
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, words, env=env))


async def test_a_shard_is_emptied_before_it_is_taken_away(sharded: ShardedCluster, tmp_path: Path) -> None:
    """Gateways that do not have it say so of its jobs, which its workers end; commands write the results to files."""
    before, after = await asyncio.gather(sharded.start_gateway(), sharded.start_gateway(1))
    await sharded.add_ghosts()
    await wait_until_used([before], [0, 1])
    jobs = JobClient(before)
    for number in range(64):
        accepted = await asyncio.to_thread(jobs.post, {"texts": ["a", "b"]}, idempotency_key=f"key-{number}")
        job = jobs.job_of(accepted)
        if "@1." in job["id"]:
            break
    assert await before.program.stop() == 0
    answer = await asyncio.to_thread(JobClient(after).get, job["status_url"])
    assert (answer.status_code, error_of(answer)["code"]) == (404, "job_not_found")
    assert "on shard 1" in error_of(answer)["message"]
    queue = sharded.cluster.queue
    listed = await run(sharded, 2, "jobs", "list", "--queue", queue, "--json")
    assert {json.loads(line)["status"] for line in listed.stdout.splitlines()} == {"queued"}
    await sharded.start_worker()

    async def has_ended() -> bool:
        shown = await run(sharded, 2, "jobs", "show", job["id"], "--json")
        return bool(json.loads(shown.stdout)["status"] == "done")

    await wait_until(has_ended, "the job has ended", timeout_s=20)
    alone = await run(sharded, 1, "jobs", "show", job["id"])
    assert alone.exit_code == 1
    assert "REDBATCH_REDIS_SHARDS" in alone.stderr
    out = tmp_path / "results.npy"
    assert (await run(sharded, 2, "jobs", "results", job["id"], "--out", str(out))).exit_code == 0
    assert np.load(out).shape == (2, 384)
    shown = json.loads((await run(sharded, 1, "queue", "--queue", queue, "--json")).stdout)
    assert (shown["waiting_entries"], shown["in_flight_entries"]) == (0, 0)
