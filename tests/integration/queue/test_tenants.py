"""Balances of tenants: their buckets, their days, and their shares of the first lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio

from shared import producer
from shared.keys import BULK, INTERACTIVE
from shared.producer import Submission
from shared.queue_connections import QueueConnections
from shared.tenants import NO_QUOTA, ActiveTenants, Limits, Quota
from tests.integration.queue.actors import BUDGET_MS, Gateway, Worker, request

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

DAY_MS = 86_400_000


def tenant_request(
    tenant: str,
    quota: Quota = NO_QUOTA,
    share: float = 0.0,
    cost: int = 10,
    budget_ms: int = BUDGET_MS,
    lane: int = INTERACTIVE,
) -> Submission:
    """Returns a request of a tenant."""
    return request(cost=cost, budget_ms=budget_ms, lane=lane)._replace(tenant=tenant, limits=Limits(quota, share))


async def statuses(gateway: Gateway, *requests: Submission) -> list[str]:
    """Submits requests one after the other; returns the status of each."""
    return [(await gateway.submit(each)).outcomes[0].status for each in requests]


async def drain(worker: Worker) -> None:
    """Answers all waiting entries."""
    while entries := await worker.claim():
        await worker.commit(entries)


async def test_a_bucket_gives_what_it_holds_and_then_what_flows_in(gateway: Gateway, worker: Worker) -> None:
    """The bucket is common to all gateways; other tenants are not delayed, and a refusal says how long to wait."""
    quota = Quota(tokens_per_s=5.0, burst_tokens=30)
    reply = await gateway.submit(*(tenant_request("a", quota) for _ in range(4)))
    assert [each.status for each in reply.outcomes] == ["ok", "ok", "ok", "limited"]
    other = Gateway(gateway.connection, gateway.keys, "gateway-2")
    outcome = (await other.submit(tenant_request("a", quota), tenant_request("b", quota))).outcomes
    assert [each.status for each in outcome] == ["limited", "ok"]
    assert (1 <= outcome[0].wait.ms <= 2_000, outcome[0].wait.limit) == (True, "rate")
    await asyncio.sleep(outcome[0].wait.ms / 1000 + 0.005)
    assert (await other.submit(tenant_request("a", quota))).outcomes[0].status == "ok"
    await drain(worker)


async def test_what_costs_more_than_a_bucket_holds_goes_when_it_is_full(gateway: Gateway, worker: Worker) -> None:
    """Such a request passes a full bucket, and the next one waits accordingly longer."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=30)
    assert await statuses(gateway, tenant_request("a", quota, cost=200)) == ["ok"]
    outcome = (await gateway.submit(tenant_request("a", quota))).outcomes[0]
    assert (outcome.status, 150_000 <= outcome.wait.ms <= 180_000) == ("limited", True)
    await drain(worker)


async def test_a_refused_request_takes_nothing(gateway: Gateway, worker: Worker) -> None:
    """A request that is refused as full or late changes neither the bucket nor the day."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=10, daily_tokens=10)
    assert (await gateway.submit(tenant_request("a", quota), bound=0)).outcomes[0].status == "full"
    assert await statuses(gateway, tenant_request("a", quota, budget_ms=0), tenant_request("a", quota)) == [
        "late",
        "ok",
    ]
    await drain(worker)


async def test_a_day_has_a_maximum_of_tokens(gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis) -> None:
    """The daily tokens last until midnight (UTC); those of yesterday do not count."""
    quota = Quota(daily_tokens=25)
    assert await statuses(gateway, tenant_request("a", quota), tenant_request("a", quota)) == ["ok", "ok"]
    outcome = (await gateway.submit(tenant_request("a", quota))).outcomes[0]
    assert (outcome.status, 0 < outcome.wait.ms <= DAY_MS, outcome.wait.limit) == ("limited", True, "day")
    saved: Any = await raw.hget(gateway.keys.tenants, "a")
    saved = saved.split()
    saved[3] = b"%d" % (int(saved[3]) - 1)
    await raw.hset(gateway.keys.tenants, "a", b" ".join(saved))
    assert await statuses(gateway, tenant_request("a", quota)) == ["ok"]
    await drain(worker)


async def test_the_first_request_of_a_day_has_no_more_than_the_day(gateway: Gateway, worker: Worker) -> None:
    """A request of more tokens than the day has is refused, also as the first; one that takes all of them passes."""
    quota = Quota(daily_tokens=25)
    sizes = [tenant_request("a", quota, cost=cost) for cost in (26, 25, 1)]
    assert await statuses(gateway, *sizes) == ["limited", "ok", "limited"]
    await drain(worker)


async def test_what_is_beyond_its_share_goes_behind(gateway: Gateway, worker: Worker) -> None:
    """Requests beyond the share go to bulk, where they can be cancelled too; bulk requests do not use the share."""
    reply = await gateway.submit(
        *(tenant_request("a", share=10.0) for _ in range(3)), tenant_request("a", share=10.0, lane=BULK)
    )
    assert [each.status for each in reply.outcomes] == ["ok", "ok", "behind", "ok"]
    assert [each.refs[0].lane for each in reply.outcomes] == [INTERACTIVE, INTERACTIVE, BULK, BULK]
    [ref] = reply.outcomes[2].refs
    assert await producer.cancel(gateway.connection, gateway.keys, [ref], []) == 1
    await asyncio.sleep(1.0)
    assert await statuses(gateway, tenant_request("a", share=10.0), tenant_request("b", share=10.0)) == ["ok", "ok"]
    await drain(worker)


async def test_a_tenant_alone_goes_behind_once_the_first_lane_is_long(gateway: Gateway, worker: Worker) -> None:
    """Beyond its share it uses what no other tenant does, up to two seconds of work, and at least for one request.

    So others' jobs delay it less. What it takes beyond its share leaves no debt for when another tenant comes.
    """
    limits = Limits(NO_QUOTA, 15.0, is_alone=True)
    requests = [tenant_request("a")._replace(limits=limits) for _ in range(9)]
    reply = await gateway.submit(*requests[:5])  # in one call: its share grows with time
    assert [each.status for each in reply.outcomes] == ["ok"] * 3 + ["behind"] * 2
    await worker.commit(await worker.claim(entries=3))
    reply = await gateway.submit(*requests[5:])
    assert [each.status for each in reply.outcomes] == ["ok"] * 3 + ["behind"]
    await drain(worker)
    large = tenant_request("a", cost=100)._replace(limits=limits)
    assert await statuses(gateway, large, large) == ["ok", "behind"]
    await drain(worker)
    await asyncio.sleep(0.7)
    assert await statuses(gateway, tenant_request("a", share=15.0)) == ["ok"]
    await drain(worker)


async def test_what_was_taken_once_is_not_counted_again(gateway: Gateway, worker: Worker) -> None:
    """A lost entry that is added again is exempt, and a submit that is repeated changes nothing."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=10)
    first = tenant_request("a", quota)
    assert await statuses(gateway, first, first._replace(exempt=True), tenant_request("a", quota)) == [
        "ok",
        "ok",
        "limited",
    ]
    await drain(worker)


async def test_active_tenants_count_by_their_weight(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Tenants with recent requests count; refused ones and invalid values in Redis do not."""
    heavy, spent = Quota(weight=3.0), Quota(tokens_per_s=0.001, burst_tokens=10)
    await gateway.submit(tenant_request("a", heavy), tenant_request("b"), tenant_request("b"), tenant_request(""))
    await raw.hset(queue.keys.tenants, "c", f"0 0 {(then := await worker.now_ms() - 60_000)} 0 0 1 {then}")
    assert await statuses(gateway, tenant_request("c", spent)) == ["limited"]
    later = await worker.now_ms() + 60_000
    by_hand: Any = {
        "words": "a b c d e f g",
        "later": f"0 0 {later} 0 0 1 {later}",
        "heavy": f"inf nan 0 0 0 1e12 {later}",
    }
    await raw.hset(queue.keys.tenants, mapping=by_hand)
    connection = queue.connection("stats")
    assert (await producer.queue_stats(connection, queue.keys)).tenants == ActiveTenants(5.0, 4.0)
    await drain(worker)


async def test_bulk_makes_no_tenant_active(queue: QueueConnections, gateway: Gateway, worker: Worker) -> None:
    """It takes no share of the first lane; a tenant whose requests go behind is active."""
    connection = queue.connection("stats")
    assert await statuses(gateway, tenant_request("a", lane=BULK), tenant_request("b")) == ["ok", "ok"]
    assert (await producer.queue_stats(connection, queue.keys)).tenants == ActiveTenants(1.0, 1.0)
    assert await statuses(gateway, tenant_request("a", share=1.0), tenant_request("a", share=1.0)) == ["ok", "behind"]
    assert (await producer.queue_stats(connection, queue.keys)).tenants == ActiveTenants(2.0, 2.0)
    await drain(worker)


async def test_the_names_of_tenants_are_bounded(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Above the bound a new tenant shares the account without a name; idle accounts that equal new ones make room."""
    now = await worker.now_ms()
    names = queue.keys.tenants
    busy: Any = {f"busy {i}": f"0 0 {now} 0 0 1" for i in range(4_095)}
    today = now // DAY_MS
    busy |= {"spent": f"0 0 {now - 70_000} {today} 5 1", "idle": f"0 0 {now - 70_000} {today} 0 1"}
    await raw.hset(names, mapping=busy)
    await gateway.submit(tenant_request("a"))
    assert [await raw.hexists(names, each) for each in ("", "a", "spent", "idle")] == [True, False, True, False]
    await raw.hdel(names, "")
    await gateway.submit(tenant_request("a"))
    assert not await raw.hexists(names, "a")
    await raw.hdel(names, "busy 7", "")
    await gateway.submit(tenant_request("a"))
    assert await raw.hexists(names, "a")
    assert await raw.pttl(names) > 0
    await drain(worker)


async def test_further_tenants_cost_no_more_than_others(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Above the bound all accounts are read once a second, and not for each request; then idle ones make room."""
    now = await worker.now_ms()
    names = queue.keys.tenants
    await raw.hset(names, mapping={f"busy {i}": f"0 0 {now} 0 0 1 {now}" for i in range(4_200)})

    async def num_reads() -> int:
        return int((await raw.info("commandstats"))["cmdstat_hgetall"]["calls"])

    await gateway.submit(tenant_request("first"))
    before, began = await num_reads(), await worker.now_ms()
    await gateway.submit(*(tenant_request(f"tenant-{i}") for i in range(50)))
    for i in range(50):
        await gateway.submit(tenant_request(f"later-{i}"))
    assert await num_reads() - before <= (await worker.now_ms() - began) // 1_000 + 1
    await raw.hset(names, "idle", f"0 0 {now - 70_000} 0 0 1")
    await asyncio.sleep(1.1)
    await gateway.submit(tenant_request("last"))
    assert not await raw.hexists(names, "idle")
    assert (await producer.queue_stats(queue.connection("stats"), queue.keys)).tenants.named == 4_200
    await drain(worker)


async def test_a_quota_that_comes_later_finds_full_buckets(gateway: Gateway, worker: Worker) -> None:
    """Without a quota and without a known rate of the fleet, buckets are not charged."""
    assert await statuses(gateway, *(tenant_request("a", cost=1_000) for _ in range(3))) == ["ok"] * 3
    quota = Quota(tokens_per_s=1.0, burst_tokens=20)
    assert await statuses(gateway, tenant_request("a", quota, share=10.0), tenant_request("a", quota, share=10.0)) == [
        "ok",
        "ok",
    ]
    assert await statuses(gateway, tenant_request("a", quota, share=10.0)) == ["limited"]
    await drain(worker)
