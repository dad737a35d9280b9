"""Gateways, workers and commands on a Redis Cluster by its own URL: they go where the slots are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
import pytest_asyncio
import redis
from typer.testing import CliRunner

from api.dispatch.shards import HOLD_S
from redbatch.commands import app
from shared.keys import API_KEYS, QUEUES, USAGE_HOURS, PoolKeys
from shared.redis_topology import tag_of_shard
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, has_vectors, log_lines, missing_of
from tests.processes import Processes, Program
from tests.redis_cluster import RedisCluster, slot_of
from tests.servers import stopped
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

POOL = "shared-pool"
SHARED = ("keys", "queues")
"""Purposes of the connections for keys that the shards of a Redis Cluster share."""


@pytest_asyncio.fixture
async def by_url(
    servers: RedisCluster, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster whose processes know the URL of the Redis Cluster. The queue is on the first server."""
    async with Processes(tmp_path_factory.mktemp("by_url")) as processes:
        yield GatewayCluster(processes, servers.cluster_url, queue_name)


def run_redbatch(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Runs a command, which must succeed, and returns what it prints."""
    result = CliRunner().invoke(app, list(arguments), env=env)
    assert result.exit_code == 0, result.output
    return result.output


def problems_of(*programs: Program) -> list[object]:
    """Returns the log records that are errors or have a stack trace."""
    return [line for each in programs for line in log_lines(each) if line["level"] == "error" or "exception" in line]


async def test_every_key_is_found_where_it_is(servers: RedisCluster, by_url: GatewayCluster) -> None:
    """API keys, usage, the list of queues and leases of GPUs are not on the server of the queue; commands find all."""
    for key in (QUEUES, API_KEYS, USAGE_HOURS, PoolKeys(POOL).slot("0")):
        await asyncio.to_thread(servers.move, slot_of(key), 0, 1)
    create = ("keys", "create", "--scope", "embed", "--scope", "admin", "--tenant", "shop")
    key = (await asyncio.to_thread(run_redbatch, *create, "--redis-url", by_url.redis_url)).split()[0]
    gateway = await by_url.start_gateway(auth="on", queue=None, all_queues=True)
    worker = await by_url.start_worker(gpu_lease="exclusive", gpu_lease_pool=POOL)
    await wait_until(lambda: gateway.missing() == [], "the gateway finds the queue of the worker")
    headers = {"authorization": f"Bearer {key}"}
    assert has_vectors(
        await asyncio.to_thread(gateway.embed, {"texts": ["a"], "model": by_url.queue}, **headers), ["a"]
    )
    url = ("--redis-url", by_url.redis_url)
    for command in (["queue"], ["queue", "--queue", by_url.queue]):
        assert by_url.queue in await asyncio.to_thread(run_redbatch, *command, *url)
    assert POOL in await asyncio.to_thread(run_redbatch, "leases", *url)
    for name in ("jobs", "dead", "keys"):
        await asyncio.to_thread(run_redbatch, name, "list", *url)
    await check_usage(gateway.url, headers, url)
    assert problems_of(gateway.program, worker) == []


async def check_usage(gateway_url: str, headers: dict[str, str], url: Sequence[str]) -> None:
    """Waits until the request of the tenant is counted, with the worker's part, and compares all ways to read it."""

    def rows(path: str) -> list[dict[str, Any]]:
        answer = plain_http.get(f"{gateway_url}{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["rows" if path.startswith("/usage") else "tenants"]
        return found

    def is_counted() -> bool:
        found = rows("/usage?group=tenant"), rows("/console/tenants")  # which is read again after five seconds
        complete = all(each and each[0]["requests"] > 0 and each[0]["inputs"] > 0 for each in found)
        return complete and found[0][0]["device_ms"] > 0

    await wait_until(is_counted, "both processes have written what they have counted", poll_s=0.2)
    (of_usage,), (of_console,) = rows("/usage?group=tenant"), rows("/console/tenants")
    for row in (of_usage, of_console):
        assert (row["tenant"], row["requests"], row["inputs"]) == ("shop", 1, 1)
    assert "shop,1," in await asyncio.to_thread(run_redbatch, "usage", "--csv", "--group", "tenant", *url)


async def test_a_slot_moves_while_requests_wait(
    servers: RedisCluster, by_url: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """The processes go after it at once: with no worker ready meanwhile, a request waits for its return."""
    gateway = await by_url.start_gateway()
    worker = await by_url.start_worker("simulated:base_ms=300,item_ms=1")
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    slot = slot_of(by_url.keys.backlog)
    for source, target in ((0, 1), (1, 0)):
        waiting = [asyncio.create_task(gateway.send(client, f"{number}")) for number in range(20)]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(servers.move, slot, source, target)
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
        assert (await gateway.send(client, "after")).status_code == 200
    assert problems_of(gateway.program, worker) == []
    assert len(gateway.program.log_records("another Redis has taken over: all connections move to it")) == 2


async def test_one_server_of_the_url_is_enough(servers: RedisCluster, by_url: GatewayCluster) -> None:
    """The others need not be up when a process starts."""
    by_url.redis_url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{servers.servers[1].port}"
    gateway = await by_url.start_gateway()
    await by_url.start_worker()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert has_vectors(await asyncio.to_thread(gateway.embed, {"texts": ["a"]}), ["a"])


async def test_shards_of_one_cluster(servers: RedisCluster, by_url: GatewayCluster, client: httpx.AsyncClient) -> None:
    """One shard on each master: both are used, and if one master hangs, the other answers."""
    tags = [tag_of_shard(by_url.queue, number, 2) for number in range(2)]
    await asyncio.to_thread(servers.move, slot_of(f"{{{tags[1]}}}"), 0, 1)
    by_url.environment["REDBATCH_QUEUE_SHARDS"] = "2"
    env = {"REDBATCH_QUEUE_SHARDS": "2", "REDBATCH_REDIS_URL": by_url.redis_url}
    gateway = await by_url.start_gateway()
    worker = await by_url.start_worker()

    def takes_both() -> bool:
        lines = gateway.program.log_records("shards that take requests")
        return bool(lines) and lines[-1]["shards"] == [0, 1]

    await wait_until(takes_both, "the gateway sees the worker on both shards", timeout_s=30)
    for index in range(2):
        with redis.Redis.from_url(servers.urls[index], protocol=2) as raw:
            assert list(raw.scan_iter(match=f"rb:{{{tags[index]}}}:worker:*")) != []
    created = []
    for number in range(12):
        created.append(await client.post(f"{gateway.url}/jobs", json={"texts": [f"{number}"]}))
        await asyncio.sleep(2 * HOLD_S)  # then the gateway chooses a shard again
    job_ids = [answer.json()["id"] for answer in created]
    assert {"@" in each for each in job_ids} == {False, True}, "jobs are on both shards"
    for job_id in job_ids:
        await asyncio.to_thread(run_redbatch, "jobs", "show", job_id, env=env)
    with stopped(servers.servers[1]):
        answers = await asyncio.gather(*(gateway.send(client, f"{number}") for number in range(40)))
    assert {answer.status_code for answer in answers} == {200}
    assert problems_of(gateway.program, worker) == []


async def test_shards_of_one_cluster_share_keys(servers: RedisCluster, by_url: GatewayCluster) -> None:
    """A gateway reads API keys and the list of queues over one connection each, not over one per shard."""
    by_url.environment["REDBATCH_QUEUE_SHARDS"] = "2"
    env = {"REDBATCH_QUEUE_SHARDS": "2", "REDBATCH_REDIS_URL": by_url.redis_url}
    created = await asyncio.to_thread(run_redbatch, "keys", "create", env=env)
    gateway = await by_url.start_gateway(auth="on", all_queues=True)
    await by_url.start_worker()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answer = await asyncio.to_thread(gateway.embed, {"texts": ["a"]}, authorization=f"Bearer {created.split()[0]}")
    assert has_vectors(answer, ["a"])
    names: list[str] = []
    for url in servers.urls:
        with redis.Redis.from_url(url, protocol=2) as raw:
            names += [each["name"] for each in raw.client_list()]
    counts = [sum(each.startswith("gateway:") and each.endswith(f":{what}") for each in names) for what in SHARED]
    assert counts == [1, 1]


async def test_commands_read_what_shards_share_once(servers: RedisCluster, by_url: GatewayCluster) -> None:
    """`redbatch queue`, which may read each second, and `keys`."""
    env = {"REDBATCH_QUEUE_SHARDS": "2", "REDBATCH_REDIS_URL": by_url.redis_url}
    clients = [redis.Redis.from_url(url, protocol=2) for url in servers.urls]
    for words, command in ((("queue",), "zrevrange"), (("keys", "list"), "hgetall")):
        for each in clients:
            each.config_resetstat()
        await asyncio.to_thread(run_redbatch, *words, env=env)
        stats: list[Any] = [each.info("commandstats").get(f"cmdstat_{command}", {}) for each in clients]
        assert sum(each.get("calls", 0) - each.get("rejected_calls", 0) for each in stats) == 1
    for each in clients:
        each.close()


async def test_the_server_of_the_list_of_queues_hangs(servers: RedisCluster, by_url: GatewayCluster) -> None:
    """The worker goes on to send heartbeats to the server of its queue, and is ready.

    For longer than `cluster-node-timeout`, two masters of which one hangs would both refuse all calls.
    """
    await asyncio.to_thread(servers.move, slot_of(QUEUES), 0, 1)
    gateway = await by_url.start_gateway()
    worker = await by_url.start_worker(heartbeat_s=0.2)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    with stopped(servers.servers[1]), redis.Redis.from_url(servers.urls[0], protocol=2) as raw:
        beats = set[float]()

        def go_on() -> bool:
            rows: Any = raw.zrange(by_url.keys.workers, 0, -1, withscores=True)
            beats.update(at_ms for _, at_ms in rows)
            return len(beats) > 4

        await wait_until(go_on, "the heartbeats go on")
        assert (missing_of(worker), gateway.missing()) == ([], [])
    assert worker.log_records("no heartbeat") == []
