"""What tenants have left: their buckets, their days, and their shares of the first lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio

from shared import submission
from shared.keys import BULK, INTERACTIVE
from shared.queue import Queue
from shared.submission import NO_QUOTA, Limits, Quota, Submission
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
    quota = Quota(tokens_per_s=100.0, burst_tokens=30)
    assert await statuses(gateway, *(of("a", quota) for _ in range(3))) == ["ok"] * 3
    other = Gateway(gateway.link, gateway.keys, "gateway-2")
    outcome = (await other.submit(of("a", quota))).outcomes[0]
    assert outcome.status == "limited"
    assert 1 <= outcome.wait_ms <= 100
    assert await statuses(gateway, of("b", quota)) == ["ok"]
    await asyncio.sleep(outcome.wait_ms / 1000 + 0.005)
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
    assert await submission.cancel(gateway.link, gateway.keys, [ref], []) == 1
    await asyncio.sleep(1.0)
    assert await statuses(gateway, of("a", share=10.0), of("b", share=10.0)) == ["ok", "ok"]
    await done(worker)


async def test_what_was_taken_once_is_not_counted_again(gateway: Gateway, worker: Worker) -> None:
    """A lost entry that is added again is exempt, and a submit that is repeated does nothing."""
    quota = Quota(tokens_per_s=1.0, burst_tokens=10)
    first = of("a", quota)
    assert await statuses(gateway, first, first._replace(exempt=True), of("a", quota)) == ["ok", "ok", "limited"]
    await done(worker)


async def test_active_tenants_count_by_their_weight(queue: Queue, gateway: Gateway, worker: Worker) -> None:
    """As long as they ask for something, be it refused."""
    heavy = Quota(weight=3.0)
    await gateway.submit(of("a", heavy), of("b"), of("b"))
    link = queue.link("pulse")
    assert (await submission.pulse(link, queue.keys)).tenants == 4.0
    await done(worker)


async def test_the_names_of_tenants_are_bounded(
    queue: Queue, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Those that are idle and as good as new make room; where there are none, a new one is one of the nameless."""
    now = await worker.now_ms()
    names = queue.keys.tenants
    busy: Any = {f"busy {i}": f"0 0 {now} 0 0 1" for i in range(4_096)}
    await raw.hset(names, mapping=busy)
    await gateway.submit(of("a"))
    assert await raw.hexists(names, "")
    assert not await raw.hexists(names, "a")
    await raw.hset(names, "busy 7", f"0 0 {now - 70_000} 0 0 1")
    await gateway.submit(of("a"))
    assert await raw.hexists(names, "a")
    assert not await raw.hexists(names, "busy 7")
    assert await raw.pttl(names) > 0
    await done(worker)
