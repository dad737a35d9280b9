"""What the cache tells a tenant of others, and what it gives beyond a quota (F21)."""

from __future__ import annotations

import asyncio
from collections import Counter

import psutil
import pytest

from shared.tenants import Quota
from tests.chaos.attack import MAX_P99_MS, measure_growth, memory_of, new_tenant, p99_of, probe_livez
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import SETTINGS, Way
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.exclusive, pytest.mark.leaves_anything]

TEXTS = [f"secret text {number}" for number in range(20)]
QUOTA = Quota(daily_tokens=150)
"""Of the tenant that guesses: more than its guesses cost, and less than these requests."""

REPEATS = 100
MAX_GROWTH_MB = 5.0
CACHE = {"cache_bytes": 10_000_000}
BOUNDED = {"cache_per_tenant": True, "cache_hits_count": True}


async def is_cached(gateway: GatewayProcess, api_key: str, text: str) -> bool:
    """Requests a text; returns whether the answer says that the vector was there before."""
    answer = await asyncio.to_thread(gateway.embed, {"text": text}, x_api_key=api_key)
    assert answer.status_code == 200
    return answer.headers["x-batch-size"] == "0"


async def guess(gateway: GatewayProcess, victim: str, attacker: str) -> tuple[int, Counter[int]]:
    """Returns of how many of a tenant's texts another one learns, and the statuses when it repeats one of these."""
    for text in TEXTS:
        await wait_until(lambda text=text: is_cached(gateway, victim, text), "the text is cached")  # type: ignore[misc]
    learned = [await is_cached(gateway, attacker, text) for text in TEXTS].count(True)
    await wait_until(lambda: is_cached(gateway, attacker, TEXTS[0]), "the text is cached for both")
    repeated = [await asyncio.to_thread(gateway.embed, {"text": TEXTS[0]}, x_api_key=attacker) for _ in range(REPEATS)]
    return learned, Counter(answer.status_code for answer in repeated)


async def test_guesses_at_a_cache(own_scenario: Scenario) -> None:
    """F21: with the settings a tenant learns of none of another's texts, and cached answers end with its quota.

    By default it learns of all, and its quota bounds no cached answers, as SECURITY.md says.
    """
    scenario = own_scenario
    victim, attacker, other = [
        await new_tenant(scenario.cluster.redis_url, quota) for quota in (Quota(), QUOTA, Quota())
    ]
    shared, bounded = [
        await scenario.cluster.start_gateway(**SETTINGS, **CACHE, **settings) for settings in ({}, BOUNDED)
    ]
    scenario.gateways += [shared, bounded]
    await scenario.start_worker("null")
    await scenario.wait_until_worker_seen()
    async with (
        scenario.load(clients=4, way=Way(bounded.port, api_key=other)) as calls,
        probe_livez(bounded) as latencies_s,
    ):
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        by_default = await guess(shared, victim, attacker)
        async with measure_growth(memory_of(psutil.Process(bounded.program.pid))) as growths_mb:
            learned, statuses = await guess(bounded, victim, attacker)
    figures = {"guesses": len(TEXTS), "learned_by_default": by_default[0], "learned": learned}
    answered = {"repeats": REPEATS, "answered_by_default": by_default[1][200], "answered": statuses[200]}
    found = {"livez_p99_ms": round(p99_of(latencies_s)), "growth_mb": round(growths_mb[0], 1)}
    verdict = scenario.judge("F21 guesses at a cache", calls, **figures, **answered, **found)
    assert all_correct(verdict)
    assert by_default == (len(TEXTS), {200: REPEATS})
    assert learned == 0
    assert set(statuses) == {200, 429}
    assert growths_mb[0] <= MAX_GROWTH_MB
    assert p99_of(latencies_s) <= MAX_P99_MS
