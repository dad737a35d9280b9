"""Connections to Redis that break around each step of a request, and all of them, again and again."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.chaos.scenario import LIVELY, MODEL, Scene, metric, whole
from tests.integration.gateway.house import listens, where
from tests.proxy import Fate, FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

NEVER_MS = 60_000
"""Nobody else takes over what a worker lost sight of: it must find that itself."""

PROMPT_S = 5.0
BETWEEN = (0.1, 0.3)
"""Shortest and longest time between two kills of all connections (s)."""

LEAST = 10
"""Strikes, however slow the machine."""

MOST_RUNS, ONE_RUN = 1.1, 1.02
"""Runs for each request, on average: where answers are lost, and where none is."""

MOST_AGAIN = 0.02
"""Entries for each request that are added again: hardly any are lost when only connections are."""


def strike(proxy: FaultProxy, scene: Scene, purpose: str, share: float, *, before: bool = False) -> Counter[str]:
    """Has a share of the calls on connections for that purpose break; returns how many did, by the purpose."""
    struck: Counter[str] = Counter()

    def hit(name: str) -> bool:
        if not name.endswith(f":{purpose}") or scene.dice.random() >= share:
            return False
        struck[purpose] += 1
        return True

    if before:
        proxy.cut_before = hit
    else:
        proxy.fate_of = lambda name: Fate.CUT if hit(name) else Fate.PASS
    return struck


def end_strike(proxy: FaultProxy) -> None:
    """Has everything pass again."""
    proxy.cut_before = lambda _name: False
    proxy.fate_of = lambda _name: Fate.PASS


async def far_gateway(scene: Scene, proxy: FaultProxy) -> None:
    """Starts a gateway behind the proxy."""
    env = scene.house.env(redis_url=proxy.url)
    program = await scene.house.processes.start("far gateway", "api", env)
    await wait_until(lambda: '"gateway starts"' in program.output, "the gateway says where it listens", timeout_s=20)

    async def accepts() -> bool:
        return await asyncio.to_thread(listens, program)

    await wait_until(accepts, "the gateway listens", timeout_s=20)
    scene.gateways.append(where(program))
    await scene.seen()


async def far_worker(scene: Scene, proxy: FaultProxy, **settings: object) -> None:
    """Starts a worker behind the proxy."""
    env = scene.house.env(model=MODEL, **LIVELY | settings | {"redis_url": proxy.url})
    program = await scene.house.processes.start("far worker", "gpuworker", env)
    await wait_until(lambda: bool(program.logged("engine ready")), "the worker is ready", timeout_s=30)
    scene.workers.append(program)


@pytest.mark.long
async def test_the_reply_to_a_submit_is_lost(scene: Scene, proxy: FaultProxy) -> None:
    """F7: the entries were added, and the gateway does not hear of it. It asks again, and nothing is added twice."""
    await scene.open(gateways=0, workers=1)
    await far_gateway(scene, proxy)
    async with scene.load() as calls:
        struck = strike(proxy, scene, "submit", 0.2)
        await asyncio.sleep(scene.times(2, 30))
        await wait_until(lambda: struck.total() >= LEAST, "it has struck", timeout_s=30)
        end_strike(proxy)
    runs = await scene.total("redbatch_inputs_total") / len(calls)
    verdict = scene.judge("F7 submit's reply lost", calls, struck=struck.total(), runs_each=round(runs, 3))
    assert whole(verdict)
    assert runs <= ONE_RUN


async def test_the_reply_to_a_claim_is_lost(scene: Scene, proxy: FaultProxy) -> None:
    """F8: the entries are this worker's, and it does not know of them. It finds them, and nobody else does."""
    await scene.open(workers=0)
    await far_worker(scene, proxy, reclaim_idle_ms=NEVER_MS)
    await scene.seen()
    async with scene.load() as calls:
        struck = strike(proxy, scene, "claim", 0.1)
        await asyncio.sleep(scene.times(2, 30))
        await wait_until(lambda: struck.total() >= LEAST, "it has struck", timeout_s=30)
        end_strike(proxy)
    verdict = scene.judge("F8 claim's reply lost", calls, struck=struck.total())
    assert whole(verdict)
    assert verdict.slowest_s <= PROMPT_S


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_cut_around_a_commit(scene: Scene, proxy: FaultProxy, before: bool) -> None:
    """F9: the answers have arrived, all of them, or none has; in either case the worker tries again."""
    await scene.open(workers=0)
    await far_worker(scene, proxy, reclaim_idle_ms=NEVER_MS)
    await scene.seen()
    async with scene.load() as calls:
        struck = strike(proxy, scene, "commit", 0.2, before=before)
        await asyncio.sleep(scene.times(2, 30))
        await wait_until(lambda: struck.total() >= LEAST, "it has struck", timeout_s=30)
        end_strike(proxy)
    runs = await scene.total("redbatch_inputs_total") / len(calls)
    name = f"F9 cut {'before' if before else 'after'} a commit"
    verdict = scene.judge(name, calls, struck=struck.total(), runs_each=round(runs, 3))
    assert whole(verdict)
    assert (verdict.slowest_s <= PROMPT_S, runs <= MOST_RUNS) == (True, True)


@pytest.mark.parametrize(("least_s", "most_s"), [BETWEEN, pytest.param(0.1, 0.1, marks=pytest.mark.long)])
async def test_all_connections_are_killed_again_and_again(scene: Scene, least_s: float, most_s: float) -> None:
    """F13: everybody's connection to Redis, several times a second. No call fails, and hardly any runs twice.

    At even times too: whoever waits longer after each kill than the next one takes to come, never gets anywhere.
    """
    await scene.open()
    rounds, killed = scene.times(12, 100), 0
    async with scene.load() as calls:
        for _ in range(rounds):
            await scene.pause(least_s, most_s)
            killed += int(await scene.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    runs = await scene.total("redbatch_inputs_total") / len(calls)
    name = "F13 all connections killed" + (", at even times" if least_s == most_s else "")
    again = sum([await metric(each.program, "redbatch_resubmitted_entries_total") for each in scene.gateways])
    verdict = scene.judge(name, calls, killed=killed, runs_each=round(runs, 3), added_again=int(again))
    assert killed >= 5 * rounds
    assert (whole(verdict), verdict.slowest_s <= PROMPT_S) == (True, True)
    assert (runs <= MOST_RUNS, again <= MOST_AGAIN * len(calls)) == (True, True)
