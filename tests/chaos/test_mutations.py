"""Mutation tests of the chaos tests: with one line of the code broken, the scenario that covers it must fail."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbatch.up.local_redis import LocalRedis
from shared.queue_connections import QueueConnections
from tests.chaos import test_inputs, test_network, test_overload, test_redis, test_workers
from tests.chaos.scenario import Figures, Scenario
from tests.proxy import FaultProxy

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.leaves_anything]

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "gpuworker", "redbatch", "shared")


@dataclass(frozen=True)
class Fixtures:
    """All fixtures that the scenarios use."""

    scenario: Scenario
    own_scenario: Scenario
    own_redis: LocalRedis
    proxy: FaultProxy
    queue: QueueConnections
    folder: Path


@dataclass(frozen=True)
class Mutation:
    """A file, a text in it, the broken text that replaces it, and the scenario that must fail then."""

    path: str
    original: str
    replacement: str
    test: Callable[[Fixtures], Awaitable[None]]


MUTATIONS = {
    "a commit does not check that the entry is still pending": Mutation(
        "shared/lua/commit.lua",
        "if redis.call('XDEL', lane_key, entry_id) == 1 then",
        "redis.call('XDEL', lane_key, entry_id)\n  if true then",
        lambda fixtures: test_workers.test_a_worker_that_sleeps_past_its_time_changes_nothing(fixtures.scenario),
    ),
    "reclaimed entries are never run": Mutation(
        "shared/lua/reclaim.lua",
        "taken[#taken + 1] = take_over(lane_index, row)",
        "take_over(lane_index, row)",
        lambda fixtures: test_workers.test_calls_survive_the_death_of_their_worker(fixtures.scenario),
    ),
    "a worker does not read its pending entries after an error": Mutation(
        "gpuworker/consumer/claimer.py",
        "            await shard.control.kill(connection)\n",
        "            return\n",
        lambda fixtures: test_network.test_the_reply_to_a_claim_is_lost(fixtures.scenario, fixtures.proxy),
    ),
    "a repeated submit adds the entries again": Mutation(
        "shared/lua/submit.lua",
        "if saved[1] == sequence_number then",
        "if false then",
        lambda fixtures: test_network.test_the_reply_to_a_submit_is_lost(fixtures.scenario, fixtures.proxy),
    ),
    "reconciliation submits again without checking": Mutation(
        "api/dispatch/reconciler.py",
        "if is_present}",
        "if False}",
        lambda fixtures: test_network.test_all_connections_are_killed_again_and_again(fixtures.scenario, 0.3, 0.6),
    ),
    "a commit is not retried": Mutation(
        "gpuworker/consumer/committer.py",
        "                self._shard.record_call(COMMIT, is_answered=False)\n",
        "                self._pending = []\n",
        lambda fixtures: test_network.test_a_cut_around_a_commit(fixtures.scenario, fixtures.proxy, before=True),
    ),
    "suspects run in a batch with others": Mutation(
        "gpuworker/policy/retries.py",
        "return RetryDecision.ISOLATED if attempts > 0 else RetryDecision.BATCHED",
        "return RetryDecision.BATCHED",
        lambda fixtures: test_inputs.test_inputs_that_kill_the_engine_fail_alone(fixtures.scenario, fixtures.queue),
    ),
    "a hung engine is not killed": Mutation(
        "gpuworker/watchdog.py",
        "                self._engine.kill()\n",
        "",
        lambda fixtures: test_workers.test_calls_survive_their_engine(fixtures.scenario, signal.SIGSTOP),
    ),
    "a late reclaim is executed": Mutation(
        "shared/lua/reclaim.lua",
        "if now - issued_ms > tonumber(max_delay_ms) then",
        "if false then",
        lambda fixtures: test_redis.check_late_reclaim(fixtures.own_scenario, fixtures.own_redis),
    ),
    "admission ignores the estimated wait": Mutation(
        "api/dispatch/admission.py",
        "return min(MAX_TOKENS, int(QUEUE_TIME_SHARE * budget_s * tokens_per_s) + overtaken_tokens)",
        "return MAX_TOKENS",
        lambda fixtures: test_overload.test_overload_is_refused_and_the_rest_served(
            fixtures.scenario, 10, fixtures.folder
        ),
    ),
    "a change of the epoch is ignored": Mutation(
        "api/dispatch/monitor.py",
        "            self._data_lost.set()\n        self._epoch = epoch\n",
        "            pass\n        self._epoch = epoch\n",
        lambda fixtures: test_redis.check_data_loss(fixtures.own_scenario, "FLUSHALL"),
    ),
}


@pytest.fixture
def rows() -> list[Figures]:
    """Returns a list that is discarded: the figures of a mutation stay out of the table."""
    return []


@pytest.fixture
def thorough() -> bool:
    """Returns False: the short form of a scenario is enough to detect a mutation."""
    return False


@pytest.fixture
def fixtures(
    scenario: Scenario,
    own_scenario: Scenario,
    own_redis: LocalRedis,
    proxy: FaultProxy,
    queue: QueueConnections,
    tmp_path: Path,
) -> Fixtures:
    """Returns all of them."""
    return Fixtures(scenario, own_scenario, own_redis, proxy, queue, tmp_path)


def use_copied_code(fixtures: Fixtures) -> None:
    """Makes every program run from a copy of the code, which a test may change."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, fixtures.folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for each in (fixtures.scenario, fixtures.own_scenario):
        each.cluster.environment |= {"PYTHONPATH": str(fixtures.folder), "REDBATCH_DRAIN_GRACE_S": "2"}


async def test_an_unchanged_copy_passes(fixtures: Fixtures) -> None:
    """An unchanged copy passes its scenario, and the programs run from the copy."""
    use_copied_code(fixtures)
    path = fixtures.folder / "gpuworker" / "worker_group.py"
    path.write_text(path.read_text(encoding="utf-8").replace('"worker starts"', '"worker starts", copied=True'))
    await test_workers.test_a_worker_that_sleeps_past_its_time_changes_nothing(fixtures.scenario)
    assert all(worker.log_records("worker starts")[0]["copied"] for worker in fixtures.scenario.workers)


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
async def test_each_mutation_is_detected(mutation: Mutation, fixtures: Fixtures) -> None:
    """A scenario fails when every program runs from a copy with one changed line."""
    use_copied_code(fixtures)
    path = fixtures.folder / mutation.path
    text = path.read_text(encoding="utf-8")
    assert text.count(mutation.original) == 1
    path.write_text(text.replace(mutation.original, mutation.replacement), encoding="utf-8")
    with pytest.raises(AssertionError) as failure:
        await mutation.test(fixtures)
    assert "the load runs" not in str(failure.value), "the scenario failed before the mutation had an effect"
    workers = [*fixtures.scenario.workers, *fixtures.own_scenario.workers]
    assert any(worker.log_records("engine ready") for worker in workers), "no worker started"
