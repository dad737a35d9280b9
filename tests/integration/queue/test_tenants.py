"""What tenants have left: their buckets, their days, and their shares of the first lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio

from shared import producer
from shared.keys import BULK, INTERACTIVE
from shared.connection import Queue
from shared.producer import Submission
from shared.tenants import NO_QUOTA, Active, Limits, Quota
from tests.integration.queue.actors import Gateway, Worker, request

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

DAY_MS = 86_400_000


def of(tenant: str, quota: Quota = NO_QUOTA, share: float = 0.0, cost: int = 10, **given: Any) -> Submission:  # noqa: ANN401
    """Returns a request of a tenant."""
    return request(cost=cost, **given)._replace(tenant=tenant, limits=Limits(quota, share))


async def statuses(gateway: Gateway, *requests: Submission) -> list[str]:
    """Submits requests one after the other; returns what became of each."""
    return [(await gateway.submit(each)).outcomes[0].status for each in requests]


async def done(worker: Worker) -> None:
    """Runs all that waits."""
    while entries := await worker.claim():
        await worker.commit(entries)


async def test_a_bucket_gives_what_it_holds_and_then_what_flows_in(gateway: Gateway, worker: Worker) -> None:
    """For all gateways together; the others are not held up, and it is said when there is enough."""
    quota = Quota(tokens_per_s=10.0, burst_tokens=30)
    reply = await gateway.submit(*(of("a", quota) for _ in range(4)))
    assert [each.status for each in reply.outcomes] == ["ok", "ok", "ok", "limited"]
    other = Gateway(gateway.link, gateway.keys, "gateway-2")
    outcome = (await other.submit(of("a", quota), of("b", quota))).outcomes
    assert [each.status for each in outcome] == ["limited", "ok"]
    assert 1 <= outcome[0].wait_ms <= 1_000
    await asyncio.sleep(outcome[0].wait_ms / 1000 + 0.005)
    assert (await other.submit(of("a", quota))).outcomes[0].status == "ok"
    await done(worker)


async def test_what_costs_more_than_a_bucket_holds_goes_when_it_is_full(gateway: Gateway, worker: Worker) -> None:
    """And what comes next waits the longer."""
    quota = Quota(tokens_per_s=100.0, burst_tokens=30)
    assert await statuses(gateway, of("a", quota, cost=200)) == ["ok"]
    outcome = (await gateway.submit(of("a", quota))).outcomes[0]
    assert (outcome.status, 1_500 <= outcome.wait_ms <= 1_800) == ("limited", True)
    await done(worker)


async def test_a_refused_request_takes_nothing(gateway: Gateway, worker: Worker) -> None:
    """Neither of the bucket nor of the day: it is full, or late."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=10, daily_tokens=10)
    assert (await gateway.submit(of("a", quota), bound=0)).outcomes[0].status == "full"
    assert await statuses(gateway, of("a", quota, budget_ms=0), of("a", quota)) == ["late", "ok"]
    await done(worker)


async def test_a_day_has_so_many_tokens(gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis) -> None:
    """Until midnight (UTC); yesterday's do not count."""
    quota = Quota(daily_tokens=25)
    assert await statuses(gateway, of("a", quota), of("a", quota)) == ["ok", "ok"]
    outcome = (await gateway.submit(of("a", quota))).outcomes[0]
    assert (outcome.status, 0 < outcome.wait_ms <= DAY_MS) == ("limited", True)
    saved: Any = await raw.hget(gateway.keys.tenants, "a")
    saved = saved.split()
    saved[3] = b"%d" % (int(saved[3]) - 1)
    await raw.hset(gateway.keys.tenants, "a", b" ".join(saved))
    assert await statuses(gateway, of("a", quota)) == ["ok"]
    await done(worker)


async def test_what_is_beyond_its_share_goes_behind(gateway: Gateway, worker: Worker) -> None:
    """Into bulk, from where it is cancelled and settled too; what is bulk anyway takes nothing of the share."""
    reply = await gateway.submit(*(of("a", share=10.0) for _ in range(3)), of("a", share=10.0, lane=BULK))
    assert [each.status for each in reply.outcomes] == ["ok", "ok", "behind", "ok"]
    assert [each.refs[0].lane for each in reply.outcomes] == [INTERACTIVE, INTERACTIVE, BULK, BULK]
    [ref] = reply.outcomes[2].refs
    assert await producer.cancel(gateway.link, gateway.keys, [ref], []) == 1
    await asyncio.sleep(1.0)
    assert await statuses(gateway, of("a", share=10.0), of("b", share=10.0)) == ["ok", "ok"]
    await done(worker)


async def test_what_was_taken_once_is_not_counted_again(gateway: Gateway, worker: Worker) -> None:
    """A lost entry that is added again is exempt, and a submit that is repeated does nothing."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=10)
    first = of("a", quota)
    assert await statuses(gateway, first, first._replace(exempt=True), of("a", quota)) == ["ok", "ok", "limited"]
    await done(worker)


async def test_active_tenants_count_by_their_weight(
    queue: Queue, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Those that had something lately; who was refused had nothing. What is no tenant in Redis counts nothing."""
    heavy, spent = Quota(weight=3.0), Quota(tokens_per_s=0.001, burst_tokens=10)
    await gateway.submit(of("a", heavy), of("b"), of("b"), of(""))
    await raw.hset(queue.keys.tenants, "c", f"0 0 {await worker.now_ms() - 60_000} 0 0 1")
    assert await statuses(gateway, of("c", spent)) == ["limited"]
    later = f"inf nan {await worker.now_ms() + 60_000} 0 0 1e12"
    await raw.hset(queue.keys.tenants, mapping={"by hand": "a b c d e f", "later": later})
    link = queue.link("pulse")
    assert (await producer.pulse(link, queue.keys)).tenants == Active(5.0, 4.0)
    await done(worker)


async def test_the_names_of_tenants_are_bounded(
    queue: Queue, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """A new one is one of the nameless then, and those that are idle and as good as new make room for the next."""
    now = await worker.now_ms()
    names = queue.keys.tenants
    busy: Any = {f"busy {i}": f"0 0 {now} 0 0 1" for i in range(4_095)}
    today = now // DAY_MS
    busy |= {"spent": f"0 0 {now - 70_000} {today} 5 1", "idle": f"0 0 {now - 70_000} {today} 0 1"}
    await raw.hset(names, mapping=busy)
    await gateway.submit(of("a"))
    assert [await raw.hexists(names, each) for each in ("", "a", "spent", "idle")] == [True, False, True, False]
    await raw.hdel(names, "")
    await gateway.submit(of("a"))
    assert not await raw.hexists(names, "a")
    await raw.hdel(names, "busy 7", "")
    await gateway.submit(of("a"))
    assert await raw.hexists(names, "a")
    assert await raw.pttl(names) > 0
    await done(worker)


async def test_a_quota_that_comes_later_finds_full_buckets(gateway: Gateway, worker: Worker) -> None:
    """While there was none, and the rate of the fleet was not known, nothing was taken off them."""
    assert await statuses(gateway, *(of("a", cost=1_000) for _ in range(3))) == ["ok"] * 3
    quota = Quota(tokens_per_s=1.0, burst_tokens=20)
    assert await statuses(gateway, of("a", quota, share=10.0), of("a", quota, share=10.0)) == ["ok", "ok"]
    assert await statuses(gateway, of("a", quota, share=10.0)) == ["limited"]
    await done(worker)
