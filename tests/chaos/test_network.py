"""Connections to Redis that break around each step of a request, and kills of all connections."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.chaos.scenario import FAST_WORKER, MODEL, Scenario, all_correct, metric, on_operations, on_shards
from tests.integration.gateway.gateway_cluster import gateway_of, is_listening
from tests.proxy import FaultProxy, ReplyAction
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

NO_RECLAIM_MS = 60_000
"""Other workers do not reclaim the entries that a worker has lost track of: it must find them itself."""

MAX_LATENCY_S = 5.0
KILL_INTERVAL_S = (0.1, 0.3)
"""Minimum and maximum time between two kills of all connections (s)."""

MIN_FAULTS = 10
"""Minimum number of faults, also on a slow machine."""

MAX_RUNS, MAX_RUNS_WITHOUT_LOSS = 1.1, 1.02
"""Maximum mean number of runs for each request: if answers are lost, and if none is."""

MAX_RESUBMITTED = 0.02
"""Maximum number of entries that are added again for each request: lost connections lose hardly any entries."""


def inject_fault(
    proxy: FaultProxy, scenario: Scenario, purpose: str, share: float, *, before: bool = False
) -> Counter[str]:
    """Breaks a share of the calls on connections for a purpose; returns the number of broken calls, by purpose."""
    injected: Counter[str] = Counter()

    def should_break(name: str) -> bool:
        if not name.endswith(f":{purpose}") or scenario.rng.random() >= share:
            return False
        injected[purpose] += 1
        return True

    if before:
        proxy.should_cut = should_break
    else:
        proxy.reply_action = lambda name: ReplyAction.CUT if should_break(name) else ReplyAction.PASS
    return injected


def clear_fault(proxy: FaultProxy) -> None:
    """Lets all calls pass again."""
    proxy.should_cut = lambda _name: False
    proxy.reply_action = lambda _name: ReplyAction.PASS


async def start_proxied_gateway(scenario: Scenario, proxy: FaultProxy) -> None:
    """Starts a gateway behind the proxy."""
    env = scenario.cluster.env(redis_url=proxy.url)
    program = await scenario.cluster.processes.start("far gateway", "api", env)
    await wait_until(lambda: '"gateway starts"' in program.output, "the gateway logs its address", timeout_s=20)

    async def accepts() -> bool:
        return await asyncio.to_thread(is_listening, program)

    await wait_until(accepts, "the gateway listens", timeout_s=20)
    scenario.gateways.append(gateway_of(program))
    await scenario.wait_until_worker_seen()


async def start_proxied_worker(scenario: Scenario, proxy: FaultProxy, **settings: object) -> None:
    """Starts a worker behind the proxy."""
    env = scenario.cluster.env(model=MODEL, **FAST_WORKER | settings | {"redis_url": proxy.url})
    program = await scenario.cluster.processes.start("far worker", "gpuworker", env)
    await wait_until(lambda: bool(program.log_records("engine ready")), "the worker is ready", timeout_s=30)
    scenario.workers.append(program)


@pytest.mark.long
@on_operations
async def test_the_reply_to_a_submit_is_lost(scenario: Scenario, proxy: FaultProxy) -> None:
    """F7: when a submit succeeds and its reply is lost, the gateway retries, and no entry is added twice."""
    await scenario.start(gateways=0, workers=1)
    await start_proxied_gateway(scenario, proxy)
    async with scenario.load() as calls:
        injected = inject_fault(proxy, scenario, "submit", 0.2)
        await asyncio.sleep(scenario.repeats(2, 30))
        await wait_until(lambda: injected.total() >= MIN_FAULTS, "enough faults were injected", timeout_s=30)
        clear_fault(proxy)
    runs = await scenario.num_runs() / len(calls)
    verdict = scenario.judge("F7 submit's reply lost", calls, faults=injected.total(), runs_each=round(runs, 3))
    assert all_correct(verdict)
    assert runs <= MAX_RUNS_WITHOUT_LOSS


async def test_the_reply_to_a_claim_is_lost(scenario: Scenario, proxy: FaultProxy) -> None:
    """F8: when the reply to a claim is lost, the worker itself finds the entries that it has claimed."""
    await scenario.start(workers=0)
    await start_proxied_worker(scenario, proxy, reclaim_idle_ms=NO_RECLAIM_MS)
    await scenario.wait_until_worker_seen()
    async with scenario.load() as calls:
        injected = inject_fault(proxy, scenario, "claim", 0.1)
        await asyncio.sleep(scenario.repeats(2, 30))
        await wait_until(lambda: injected.total() >= MIN_FAULTS, "enough faults were injected", timeout_s=30)
        clear_fault(proxy)
    verdict = scenario.judge("F8 claim's reply lost", calls, faults=injected.total())
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_LATENCY_S


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_cut_around_a_commit(scenario: Scenario, proxy: FaultProxy, before: bool) -> None:
    """F9: when the connection breaks before or after a commit, the worker retries it and no call fails."""
    await scenario.start(workers=0)
    await start_proxied_worker(scenario, proxy, reclaim_idle_ms=NO_RECLAIM_MS)
    await scenario.wait_until_worker_seen()
    async with scenario.load() as calls:
        injected = inject_fault(proxy, scenario, "commit", 0.2, before=before)
        await asyncio.sleep(scenario.repeats(2, 30))
        await wait_until(lambda: injected.total() >= MIN_FAULTS, "enough faults were injected", timeout_s=30)
        clear_fault(proxy)
    runs = await scenario.worker_metric("redbatch_inputs_total") / len(calls)
    name = f"F9 cut {'before' if before else 'after'} a commit"
    verdict = scenario.judge(name, calls, faults=injected.total(), runs_each=round(runs, 3))
    assert all_correct(verdict)
    assert (verdict.slowest_s <= MAX_LATENCY_S, runs <= MAX_RUNS) == (True, True)


@on_shards
@pytest.mark.parametrize(("min_s", "max_s"), [KILL_INTERVAL_S, pytest.param(0.1, 0.1, marks=pytest.mark.long)])
async def test_all_connections_are_killed_again_and_again(scenario: Scenario, min_s: float, max_s: float) -> None:
    """F13: no call fails and hardly any runs twice when all connections to Redis are killed several times a second.

    The intervals are random or constant: with a constant interval, a process that waits longer than it after each kill
    never makes progress.
    """
    await scenario.start()
    rounds, killed = scenario.repeats(12, 100), 0
    async with scenario.load() as calls:
        for _ in range(rounds):
            await scenario.sleep_randomly(min_s, max_s)
            for raw in scenario.shards:
                killed += int(await raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    runs = await scenario.worker_metric("redbatch_inputs_total") / len(calls)
    name = "F13 all connections killed" + (", at a constant interval" if min_s == max_s else "")
    resubmitted = sum([await metric(each.program, "redbatch_resubmitted_entries_total") for each in scenario.gateways])
    verdict = scenario.judge(name, calls, killed=killed, runs_each=round(runs, 3), resubmitted=int(resubmitted))
    assert killed >= 5 * rounds
    assert (all_correct(verdict), verdict.slowest_s <= MAX_LATENCY_S) == (True, True)
    assert (runs <= MAX_RUNS, resubmitted <= MAX_RESUBMITTED * len(calls)) == (True, True)
