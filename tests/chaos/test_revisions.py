"""Workers of one revision replace those of another, under requests that ask for a revision (F29)."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.chaos.load import concurrent_clients
from tests.chaos.scenario import Scenario, all_correct
from tests.processes import Program
from tests.revisions import revisions_in

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_anything]

LASTING, OLD, NEW = "lasting", "old", "new"
REVISIONS = (LASTING, OLD, NEW)
NUM_TEXTS = 40
"""More than one entry holds: workers of several revisions may run the entries of a request."""

CLIENTS, TIMEOUT_S = 8, 20.0
LARGE_BATCHES = {"max_batch_size": 64, "claim_window": 128}
GONE = "409 revision_gone"


def model_of(revision: str) -> str:
    """Returns the simulated model of a revision."""
    return f"simulated:base_ms=20,item_ms=0.2,revision={revision}"


def ways_to_request(queue: str) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Yields the revision that a request names ("" for any), with fields and headers, again and again."""
    ways: list[tuple[str, dict[str, str], dict[str, str]]] = [("", {}, {})]
    for name in REVISIONS:
        ways += [(name, {}, {"x-model-revision": f"sha256-{name}"}), (name, {"model": f"{queue}@sha256-{name}"}, {})]
    return itertools.cycle(ways)


def outcome_of(answer: httpx.Response, texts: list[str], pinned: str) -> str:
    """Returns OK for vectors of one revision, the one that the header names and that was requested; else the fault."""
    content: Any = answer.json()
    if answer.status_code != 200:
        return f"{answer.status_code} {content['error']['code']}"
    found = revisions_in(content["embeddings"], texts, REVISIONS)
    if len(found) > 1:
        return "mixed"
    is_right = answer.headers["x-model-revision"] == f"sha256-{min(found)}" and (not pinned or found == {pinned})
    return OK if is_right else FOREIGN


async def replace(scenario: Scenario, workers: list[Program], revision: str, *, kill: bool) -> list[Program]:
    """Replaces workers by as many of another revision; the last one is killed if `kill`, the others drain."""
    started = [await scenario.start_worker(model_of(revision), **LARGE_BATCHES) for _ in workers]
    await asyncio.sleep(1.0)
    for number, worker in enumerate(workers, 1):
        scenario.workers.remove(worker)
        if kill and number == len(workers):
            worker.kill()
        else:
            assert await worker.stop() == 0
    await asyncio.sleep(1.0)
    return started


async def test_a_revision_is_never_another_one(scenario: Scenario) -> None:
    """F29: in roll-outs and roll-backs, in which workers drain or are killed.

    A request gets vectors of one revision, the one that it requests; only if no worker has that, 409 `revision_gone`.
    """
    await scenario.start(workers=0)
    for revision in (LASTING, OLD):
        await scenario.start_worker(model_of(revision), **LARGE_BATCHES)
    await scenario.wait_until_worker_seen()
    refused: list[str] = []
    ways, numbers = ways_to_request(scenario.cluster.keys.queue), itertools.count()

    async def run(stop: asyncio.Event, calls: list[Call]) -> None:
        async with plain_http.client(timeout=TIMEOUT_S + 10) as client:
            while not stop.is_set():
                number, (pinned, fields, headers) = next(numbers), next(ways)
                texts, began = [f"text {number} {index}" for index in range(NUM_TEXTS)], time.monotonic()
                body = {"texts": texts, "timeout_ms": int(TIMEOUT_S * 1000)} | fields
                url = f"{scenario.gateways[number % 2].url}/embed"
                try:
                    outcome = outcome_of(await client.post(url, json=body, headers=headers), texts, pinned)
                except httpx.TransportError:
                    outcome = RESET
                if outcome == GONE and pinned in (OLD, NEW):
                    refused.append(pinned)
                else:
                    calls.append(Call(texts[0], TIMEOUT_S, began, time.monotonic(), outcome))

    rounds = scenario.repeats(1, 8)
    async with concurrent_clients(run, CLIENTS) as calls:
        workers = [scenario.workers[1]]
        for number in range(rounds):
            workers = await replace(scenario, workers, NEW, kill=number % 2 == 1)
            workers = await replace(scenario, workers, OLD, kill=number % 2 == 0)
    mixed = sum(int(each.metric("redbatch_mixed_entries_total")) for each in scenario.gateways)
    figures = {"rollouts": 2 * rounds, "revision_gone": len(refused), "entries_run_again": mixed}
    verdict = scenario.judge("F29 workers of two revisions replace each other", calls, **figures)
    assert all_correct(verdict)
    assert set(refused) == {OLD, NEW}
