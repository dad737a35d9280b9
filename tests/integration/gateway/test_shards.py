"""A gateway of several shards: what they share, and what it does while the Redis of one is away."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from api.dispatch.shards import HOLD_S
from redbatch.commands import app
from shared.eviction import EVICTION_WARNING
from tests import plain_http
from tests.chaos.attack import new_tenant
from tests.integration.gateway.gateway_cluster import (
    GatewayProcess,
    error_of,
    has_vectors,
    log_lines,
    null_vector,
    vector_bytes,
)
from tests.integration.gateway.job_client import JobClient
from tests.servers import stopped
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

TEXT = "x" * 392
"""About 100 tokens, as estimated from its length."""

STALE_KEY_S = 1.2
"""After this time a gateway looks a key up again."""


@pytest_asyncio.fixture
async def sharded(queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ShardedCluster]:
    """Two Redis with a shard each, without processes."""
    async with sharded_cluster(2, queue_name, tmp_path_factory.mktemp("shards")) as cluster:
        yield cluster


async def start(sharded: ShardedCluster, **settings: Any) -> GatewayProcess:  # noqa: ANN401 - settings of a gateway
    """Starts a gateway of all shards, and a worker of each."""
    workers = asyncio.gather(*map(sharded.start_worker_of, range(len(sharded.servers))))
    gateway, _ = await asyncio.gather(sharded.start_gateway(**settings), workers)
    await wait_until_used([gateway], range(len(sharded.servers)))
    return gateway


async def embed(gateway: GatewayProcess, text: str = "a", **headers: str) -> httpx.Response:
    """Posts a text on a new connection."""
    return await asyncio.to_thread(gateway.embed, {"text": text}, **headers)


async def inputs_of(sharded: ShardedCluster) -> list[int]:
    """Returns the number of inputs in each shard."""
    backlog = sharded.cluster.keys.backlog
    return [int(await each.hget(backlog, "inputs") or 0) for each in sharded.clients]


async def check_usage(sharded: ShardedCluster, gateway: GatewayProcess, inputs: dict[str, int]) -> None:
    """Checks what route and command report of tenants: what the worker of each shard has counted."""

    async def is_there() -> bool:
        answer = await asyncio.to_thread(plain_http.get, f"{gateway.url}/usage?group=tenant")
        return {row["tenant"]: row["inputs"] for row in answer.json()["rows"]} == inputs

    await wait_until(is_there, "the report has all")
    environment = {"REDBATCH_REDIS_SHARDS": sharded.urls}
    result = await asyncio.to_thread(CliRunner().invoke, app, ["usage", "--group", "tenant", "--json"], env=environment)
    assert {row["tenant"]: row["inputs"] for row in map(json.loads, result.stdout.splitlines())} == inputs


async def test_shards_divide_the_bounds_and_pass_on_what_does_not_fit(
    sharded: ShardedCluster, client: httpx.AsyncClient
) -> None:
    """Requests that come at once prefer one shard, and all fit; if one shard is away, the other has the whole bound."""
    gateway = await sharded.start_gateway(max_queue_inputs=8)
    await sharded.add_ghosts()
    await wait_until_used([gateway], [0, 1])
    answers = await asyncio.gather(*(gateway.send(client, f"{i}", x_timeout_ms="3000") for i in range(10)))
    assert Counter(each.status_code for each in answers) == {504: 8, 429: 2}
    assert {error_of(each)["code"] for each in answers if each.status_code == 429} == {"queue_full"}
    await wait_until(lambda: gateway.metric("redbatch_cancelled_entries_total") == 8, "the entries are cancelled")
    calls = [asyncio.create_task(gateway.send(client, f"{i}", x_timeout_ms="30000")) for i in range(8)]

    async def are(expected: list[int]) -> bool:
        return await inputs_of(sharded) == expected

    await wait_until(lambda: are([4, 4]), "each shard has half of them")
    await wait_until(lambda: gateway.metric("redbatch_queue_inputs") == 8, "the metrics have the sum")
    up = [f'redbatch_redis_up{{shard="{each}"}}' for each in (0, 1)]
    assert [gateway.metric(each) for each in up] == [1, 1]
    assert gateway.ready_workers(sharded.cluster.queue) == 1, "one worker, of both shards"
    with stopped(sharded.servers[1]):
        await wait_until(lambda: gateway.metric("redbatch_moved_requests_total") == 4, "the requests there have moved")
        await wait_until(lambda: [gateway.metric(each) for each in up] == [1, 0], "the metrics show which is away")
        assert gateway.metric("redbatch_requests_in_flight") == 8
    await wait_until(lambda: are([8, 0]), "those of the shard that hung are cancelled")
    assert gateway.metric("redbatch_request_inputs_total") == 16, "those that moved count once"
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_requests_that_share_an_entry_move_one_by_one(sharded: ShardedCluster, client: httpx.AsyncClient) -> None:
    """Each client gets the vector of its text, from the shard that is left."""
    gateway = await sharded.start_gateway()
    await sharded.add_ghosts(max_batch_size=64, max_batch_tokens=16_384)
    await wait_until_used([gateway], [0, 1])
    texts, calls = [f"text {number}" for number in range(80)], []
    for start in range(0, len(texts), 20):
        calls += [asyncio.create_task(gateway.send(client, text, x_timeout_ms="60000")) for text in texts[start:][:20]]
        await asyncio.sleep(10 * HOLD_S)  # then a gateway chooses a shard again
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == len(texts), "all wait")
    assert gateway.metric("redbatch_coalesced_requests_total") > 0
    assert min(await inputs_of(sharded)) > 0
    with stopped(sharded.servers[1]):
        await sharded.start_worker_of(0)
        answers = await asyncio.gather(*calls)
    vectors = [vector_bytes(each.json()["embedding"]) for each in answers]
    assert vectors == [null_vector(each) for each in texts]
    assert gateway.metric("redbatch_moved_requests_total") > 0
    assert gateway.metric("redbatch_request_inputs_total") == len(texts)


async def test_requests_leave_a_shard_with_its_last_worker(sharded: ShardedCluster, client: httpx.AsyncClient) -> None:
    """No worker would run those that wait there: they go to a shard that has workers."""
    gateway = await sharded.start_gateway(max_queue_inputs=8)
    await sharded.add_ghosts()
    await wait_until_used([gateway], [0, 1])
    calls = [asyncio.create_task(gateway.send(client, f"{i}", x_timeout_ms="30000")) for i in range(8)]

    async def are(expected: list[int]) -> bool:
        return await inputs_of(sharded) == expected

    await wait_until(lambda: are([4, 4]), "each shard has half of them")
    names = [f'redbatch_shard_workers{{queue="{sharded.cluster.queue}",shard="{number}"}}' for number in (0, 1)]
    assert [gateway.metric(each) for each in names] == [1, 1]
    await sharded.remove_ghost(1)
    await wait_until(lambda: are([8, 0]), "all are where a worker is")
    assert [gateway.metric(each) for each in names] == [1, 0]
    assert gateway.metric("redbatch_moved_requests_total") == 4
    await sharded.remove_ghost(0)
    await wait_until_used([gateway], [])
    assert await inputs_of(sharded) == [8, 0], "no other shard has a worker"
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("command", ["min-replicas-to-write", "maxmemory"])
async def test_a_redis_that_refuses_writes_is_not_used(
    sharded: ShardedCluster, client: httpx.AsyncClient, command: str
) -> None:
    """It answers reads, but takes no requests: all are answered by the other one."""
    gateway = await start(sharded)
    await sharded.clients[0].config_set(command, "1")
    answers = await asyncio.gather(*(gateway.send(client, f"{i}", x_timeout_ms="10000") for i in range(20)))
    assert [each.status_code for each in answers] == [200] * 20
    assert gateway.missing() == []
    await sharded.clients[0].config_set(command, "0")
    await wait_until_used([gateway], [0, 1])


async def test_a_tenant_lives_on_one_shard(sharded: ShardedCluster) -> None:
    """Its quota is exact; while its shard is away, it has its whole burst on another one."""
    gateway = await start(sharded, tenant_tokens_per_s=0.001, tenant_burst_tokens=200)
    tenants = [f"tenant-{i}" for i in range(8)]
    for tenant in tenants:
        statuses = [(await embed(gateway, TEXT, x_tenant=tenant)).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
    await check_usage(sharded, gateway, dict.fromkeys(tenants, 2))
    await sharded.kill(0)
    await wait_until_used([gateway], [1])
    statuses = [(await embed(gateway, TEXT, x_tenant=tenant)).status_code for tenant in tenants]
    assert set(statuses) == {200, 429}, "some lived on the first shard, and others on the second"


async def test_a_full_shard_passes_no_named_tenant_on(sharded: ShardedCluster, client: httpx.AsyncClient) -> None:
    """On another shard it would have its share of the fleet once more. It may fill its shard."""
    gateway = await sharded.start_gateway(max_queue_inputs=8)
    await sharded.add_ghosts()
    await wait_until_used([gateway], [0, 1])
    named = (gateway.send(client, f"{i}", x_tenant="a", x_timeout_ms="2000") for i in range(8))
    statuses = Counter(each.status_code for each in await asyncio.gather(*named))
    assert statuses == {504: 4, 429: 4}


async def test_keys_are_read_from_any_shard(sharded: ShardedCluster) -> None:
    """Also while one Redis is away, and after it has come back empty; an unknown key is refused."""
    gateway = await sharded.start_gateway(auth="on")
    await sharded.add_ghosts()
    await wait_until_used([gateway], [0, 1])

    async def status(key: str) -> int:
        return (await embed(gateway, "a", x_api_key=key, x_timeout_ms="1")).status_code

    for shard in (0, 1):
        await sharded.kill(shard)
        await wait_until_used([gateway], [1 - shard])
        keys = [await new_tenant(sharded.servers[1 - shard].url) for _ in range(8)]
        assert await status(keys[0]) == 504, "the key is valid, but there is no worker"
        assert await status(f"{keys[0]}x") == 401
        await sharded.restart(shard)
        await sharded.add_ghosts()
        await wait_until_used([gateway], [0, 1])
        assert [await status(each) for each in keys[1:5]] == [504] * 4, "the other one has keys"
        await new_tenant(sharded.servers[shard].url)
        assert [await status(each) for each in keys[5:]] == [504] * 3, "the other one has the keys from before"
        await asyncio.sleep(STALE_KEY_S)
        assert await status(keys[0]) == 504


async def test_queues_are_found_on_any_shard(sharded: ShardedCluster) -> None:
    """Queues, and gateways, that start while the first Redis is away."""
    queue = sharded.cluster.queue
    await sharded.kill(0)
    gateway = await sharded.start_gateway(all_queues=True)
    for name in (queue, f"{queue}-other"):
        await sharded.start_worker_of(1, queue=name)

    async def is_found() -> bool:
        body = {"text": "a", "model": f"{queue}-other"}
        return (await asyncio.to_thread(gateway.embed, body)).status_code == 200

    await wait_until(is_found, "the other queue is served", timeout_s=20, poll_s=0.1)
    assert {each["id"] for each in plain_http.get(f"{gateway.url}/v1/models").json()["data"]} == {
        queue,
        f"{queue}-other",
    }


async def test_cached_vectors_are_divided_among_shards(sharded: ShardedCluster) -> None:
    """While one Redis is away, its vectors are computed again, and those of the others are found."""
    gateway = await start(sharded, cache_bytes=2**20)
    texts = [f"text {i}" for i in range(40)]
    body = {"texts": texts}
    assert has_vectors(await asyncio.to_thread(gateway.embed, body), texts)
    cache = sharded.cluster.keys.cache[1:]

    async def are_stored() -> bool:
        sizes = [sum([int(await each.hlen(name)) for name in cache]) for each in sharded.clients]
        return min(sizes) > 0 and sum(sizes) == len(texts)

    await wait_until(are_stored, "each shard has a part of them")

    async def num_hits() -> float:
        before = gateway.metric("redbatch_cache_hits_total")
        assert has_vectors(await asyncio.to_thread(gateway.embed, body), texts)
        return gateway.metric("redbatch_cache_hits_total") - before

    async def finds_all() -> bool:
        return await num_hits() == len(texts)

    await wait_until(finds_all, "all are found, which a look-up that takes too long does not")
    await sharded.kill(1)
    await wait_until_used([gateway], [0])

    async def finds_a_part() -> bool:
        return 0 < await num_hits() < len(texts)

    await wait_until(finds_a_part, "those of the other shard are found")


async def test_a_job_lives_on_the_shard_that_its_id_names(sharded: ShardedCluster) -> None:
    """While that Redis is away, the job is out of reach, and so are new ones with its idempotency key; others go on."""
    gateway = await start(sharded)
    jobs = JobClient(gateway)
    by_shard: dict[bool, tuple[str, dict[str, Any]]] = {}
    for number in range(64):
        job = jobs.job_of(await asyncio.to_thread(jobs.post, {"texts": ["a"]}, idempotency_key=f"key-{number}"))
        by_shard[f"{sharded.cluster.queue}@1." in job["id"]] = (f"key-{number}", job)
        if len(by_shard) == 2:
            break
    for key, job in by_shard.values():
        ended = await asyncio.to_thread(jobs.wait_until_ended, job)
        assert ended["status"] == "done"
        again = await asyncio.to_thread(jobs.post, {"texts": ["a"]}, idempotency_key=key)
        assert again.json()["id"] == job["id"]
        assert len((await asyncio.to_thread(jobs.get, job["result_url"])).json()["embeddings"]) == 1
        shown = await asyncio.to_thread(run_jobs_command, sharded, "show", job["id"])
        assert [each["id"] for each in shown] == [job["id"]]
    listed = await asyncio.to_thread(run_jobs_command, sharded, "list", "--queue", sharded.cluster.queue)
    assert {job["id"] for _, job in by_shard.values()} <= {each["id"] for each in listed}
    await sharded.kill(1)
    await wait_until_used([gateway], [0])
    (here, job_here), (there, job_there) = by_shard[False], by_shard[True]
    assert (await asyncio.to_thread(jobs.get, job_here["status_url"])).status_code == 200
    away = await asyncio.to_thread(jobs.get, job_there["status_url"])
    assert (away.status_code, error_of(away)["code"]) == (503, "redis_unreachable")
    repeated = [await asyncio.to_thread(jobs.post, {"texts": ["a"]}, idempotency_key=each) for each in (here, there)]
    assert [each.status_code for each in repeated] == [202, 503]
    assert (await asyncio.to_thread(jobs.post, {"texts": ["a"]})).status_code == 202
    assert (await asyncio.to_thread(jobs.delete, job_here["status_url"])).status_code == 200
    unknown = job_here["status_url"].replace(f"{sharded.cluster.queue}.", f"{sharded.cluster.queue}@2.")
    assert (await asyncio.to_thread(jobs.get, unknown)).status_code == 404


async def test_jobs_avoid_a_redis_that_is_low_on_memory(sharded: ShardedCluster) -> None:
    """As other requests do. One with an idempotency key is refused by its shard; so are all if all are low."""
    gateway = await start(sharded)
    jobs = JobClient(gateway)

    async def run_low(shard: int) -> None:
        ratio = f'redbatch_redis_memory_ratio{{shard="{shard}"}}'

        async def knows() -> bool:
            used = int((await sharded.clients[shard].info("memory"))["used_memory"])  # buffers of clients come and go
            await sharded.clients[shard].config_set("maxmemory", int(used / 0.8))
            return gateway.metric(ratio) > 0.7

        await wait_until(knows, "the gateway knows", poll_s=0.1)

    await run_low(0)
    answers = [await asyncio.to_thread(jobs.post, {"texts": ["a"]}) for _ in range(12)]
    assert [each.status_code for each in answers] == [202] * 12
    assert {each.json()["id"].partition(".")[0] for each in answers} == {f"{sharded.cluster.queue}@1"}
    answers = [await asyncio.to_thread(jobs.post, {"texts": ["a"]}, idempotency_key=f"{i}") for i in range(12)]
    assert {each.status_code for each in answers} == {202, 503}
    assert all(f"{sharded.cluster.queue}@1." in each.text for each in answers if each.status_code == 202)
    await run_low(1)
    refused = await asyncio.to_thread(jobs.post, {"texts": ["a"]})
    assert (refused.status_code, error_of(refused)["code"]) == (503, "jobs_full")


def run_jobs_command(sharded: ShardedCluster, *words: str) -> list[dict[str, Any]]:
    """Returns what `redbatch jobs` prints as JSON of all shards."""
    urls = ",".join(as_user(each.url, "admin") for each in sharded.servers)
    result = CliRunner().invoke(app, ["jobs", *words, "--json"], env={"REDBATCH_REDIS_SHARDS": urls})
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_the_log_names_the_redis_that_it_is_about(sharded: ShardedCluster) -> None:
    """Not all of them: whether it has lost its data, evicts, is away or is back."""
    await sharded.clients[1].config_set("maxmemory-policy", "allkeys-lru")
    gateway = await start(sharded)
    await sharded.clients[1].flushall()
    lost = "Redis lost the queue's data, its group was recreated or it moved: reconciling all requests"

    def is_logged(message: str) -> bool:
        return bool(gateway.program.log_records(message))

    await wait_until(lambda: is_logged(lost), "the loss is in the log")
    await sharded.kill(1)
    await wait_until(lambda: is_logged("Redis is out of reach"), "so is the outage")
    await sharded.restart(1)
    await wait_until(lambda: is_logged("Redis answers again"), "so is its end")
    lines = [each for each in log_lines(gateway.program) if "Redis" in each["msg"]]
    places = [(number, f"127.0.0.1:{server.port}") for number, server in enumerate(sharded.servers)]
    assert {(each.get("shard"), each["redis"]) for each in lines} <= set(places)  # a stall may make the other seem away
    messages = {each["msg"] for each in lines if each["shard"] == 1}
    assert {lost, "Redis is out of reach", "Redis answers again", EVICTION_WARNING} <= messages
    assert not {lost, EVICTION_WARNING} & {each["msg"] for each in lines if each["shard"] == 0}


async def test_a_gateway_is_ready_while_any_shard_answers(sharded: ShardedCluster) -> None:
    """While none does, requests wait for the first that comes back, as with one Redis."""
    gateway = await start(sharded)
    await sharded.kill(0)
    await wait_until_used([gateway], [1])
    assert gateway.missing() == []
    await sharded.kill(1)
    await wait_until(lambda: gateway.missing() == ["redis"], "no shard answers")
    call = asyncio.create_task(embed(gateway, x_timeout_ms="30000"))
    await asyncio.sleep(0.5)
    assert not call.done()
    await sharded.restart(0)
    assert (await call).status_code == 200
    assert gateway.missing() == []
