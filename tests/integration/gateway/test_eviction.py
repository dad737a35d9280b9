"""A Redis that removes keys when its memory is full, and one that does not report whether it does."""

from __future__ import annotations

import asyncio

import pytest
import redis

from shared.eviction import EVICTION_WARNING
from tests.integration.gateway.gateway_cluster import GatewayCluster, null_vector, vector_bytes
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def test_a_policy_that_loses_data_is_a_warning_and_a_metric(
    isolated_cluster: GatewayCluster, own_redis: Server
) -> None:
    """Gateway and worker warn once, with the policy; the metric follows the policy, and the warning comes again."""
    with redis.Redis.from_url(own_redis.url, protocol=2) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        gateway, worker = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
        processes = (gateway.program, worker)
        for each in processes:
            await wait_until(lambda each=each: bool(each.log_records(EVICTION_WARNING)), "it warns")  # type: ignore[misc]
        await wait_until(lambda: gateway.metric("redbatch_redis_evicts") == 1, "the metric shows it")
        raw.config_set("maxmemory-policy", "noeviction")
        await wait_until(lambda: gateway.metric("redbatch_redis_evicts") == 0, "the metric shows the change")
        records = [record for each in processes for record in each.log_records(EVICTION_WARNING)]
        assert [(each["level"], each["policy"]) for each in records] == [("warning", "allkeys-lru")] * 2


async def test_nothing_is_claimed_where_redis_does_not_tell(
    isolated_cluster: GatewayCluster, own_redis: Server
) -> None:
    """A worker whose user may not run INFO serves without a warning."""
    with redis.Redis.from_url(own_redis.url, protocol=2) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        raw.execute_command("ACL", "SETUSER", "uninformed", "on", ">secret", "~*", "+@all", "-info")
        url = f"redis://uninformed:secret@127.0.0.1:{own_redis.port}/0"
        gateway, worker = await asyncio.gather(
            isolated_cluster.start_gateway(), isolated_cluster.start_worker(redis_url=url)
        )
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        answer = gateway.embed({"text": "a"})
        assert vector_bytes(answer.json()["embedding"]) == null_vector("a")
        assert "maxmemory-policy" not in worker.output
        assert gateway.metric("redbatch_redis_evicts") == 1
        await worker.stop()  # before the log is cleared, as it runs INFO again and again
        raw.execute_command("ACL", "LOG", "RESET")  # of the refused INFO: see Server.stop
