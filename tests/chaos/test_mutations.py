"""Tests of the tests: with one thing broken on purpose, the scene that is there for it fails."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbatch.local_redis import LocalRedis
from shared.queue import Queue
from tests.chaos import test_inputs, test_network, test_overload, test_redis, test_workers
from tests.chaos.scenario import Figures, Scene
from tests.proxy import FaultProxy

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.litters]

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "gpuworker", "redbatch", "shared")


@dataclass(frozen=True)
class Stage:
    """What scenes may need."""

    scene: Scene
    own_scene: Scene
    own_redis: LocalRedis
    proxy: FaultProxy
    queue: Queue
    folder: Path


@dataclass(frozen=True)
class Broken:
    """A file, what stands there, and what stands there in the broken variant; and the scene that must notice."""

    path: str
    right: str
    wrong: str
    notices: Callable[[Stage], Awaitable[None]]


VARIANTS = {
    "commit without looking whether the entry is still owed": Broken(
        "shared/lua/commit.lua",
        "if redis.call('XDEL', lane, id) == 1 then",
        "redis.call('XDEL', lane, id)\n  if true then",
        lambda stage: test_workers.test_a_worker_that_sleeps_past_its_time_changes_nothing(stage.scene),
    ),
    "what is taken over is never run": Broken(
        "shared/lua/reclaim.lua",
        "taken[#taken + 1] = {found[1], count, owner == ARGV[12] and 1 or 0}",
        "taken[#taken + 1] = nil",
        lambda stage: test_workers.test_calls_survive_the_death_of_their_worker(stage.scene),
    ),
    "one's own pending entries are not read after an error": Broken(
        "gpuworker/claimer.py",
        "            await context.control.kill(link)\n",
        "            return\n",
        lambda stage: test_network.test_the_reply_to_a_claim_is_lost(stage.scene, stage.proxy),
    ),
    "submit adds anew when it is repeated": Broken(
        "shared/lua/submit.lua",
        "if saved[1] == seq then",
        "if false then",
        lambda stage: test_network.test_the_reply_to_a_submit_is_lost(stage.scene, stage.proxy),
    ),
    "settle adds again without looking": Broken(
        "api/settler.py",
        "if not there]",
        "if True]",
        lambda stage: test_network.test_all_connections_are_killed_again_and_again(stage.scene, 0.3, 0.6),
    ),
    "a commit is not tried again": Broken(
        "gpuworker/committer.py",
        '                log.warning("cannot commit", reason=error.message)\n',
        "                self._answers = []\n",
        lambda stage: test_network.test_a_cut_around_a_commit(stage.scene, stage.proxy, before=True),
    ),
    "suspects run with others": Broken(
        "gpuworker/retries.py",
        "return Retry.ALONE if attempts > 0 else Retry.TOGETHER",
        "return Retry.TOGETHER",
        lambda stage: test_inputs.test_inputs_that_kill_the_engine_fail_alone(stage.scene, stage.queue),
    ),
    "a hung engine is left alone": Broken(
        "gpuworker/watchdog.py",
        "                self._engine.kill()\n",
        "",
        lambda stage: test_workers.test_calls_survive_their_engine(stage.scene, signal.SIGSTOP),
    ),
    "a reclaim obeys however late it comes": Broken(
        "shared/lua/reclaim.lua",
        "if now - ARGV[6] > tonumber(ARGV[7]) then",
        "if false then",
        lambda stage: test_redis.tempt(stage.own_scene, stage.own_redis),
    ),
    "nobody asks whether there is time": Broken(
        "api/admission.py",
        "return int(IN_TIME * budget_s * tokens_per_s) if tokens_per_s > 0 else MOST_TOKENS",
        "return MOST_TOKENS",
        lambda stage: test_overload.test_overload_is_refused_and_the_rest_served(stage.scene, 10, stage.folder),
    ),
    "a change of the epoch goes unnoticed": Broken(
        "api/monitor.py",
        "            self._lost.set()\n        self._epoch = epoch\n",
        "            pass\n        self._epoch = epoch\n",
        lambda stage: test_redis.take_away(stage.own_scene, "FLUSHALL"),
    ),
}


@pytest.fixture
def rows() -> list[Figures]:
    """What a broken variant finds is nobody's to read: it stays out of the table."""
    return []


@pytest.fixture
def thorough() -> bool:
    """A broken variant shows in the short form of its scene."""
    return False


@pytest.fixture
def stage(
    scene: Scene, own_scene: Scene, own_redis: LocalRedis, proxy: FaultProxy, queue: Queue, tmp_path: Path
) -> Stage:
    """All of it at once."""
    return Stage(scene, own_scene, own_redis, proxy, queue, tmp_path)


def run_from_a_copy(stage: Stage) -> None:
    """Has every program run from a copy of the code, which may be changed."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, stage.folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for each in (stage.scene, stage.own_scene):
        each.house.environment |= {"PYTHONPATH": str(stage.folder), "REDBATCH_DRAIN_GRACE_S": "2"}


async def test_a_copy_in_which_nothing_is_broken_passes(stage: Stage) -> None:
    """The copy is not what fails; and the programs do run from it."""
    run_from_a_copy(stage)
    path = stage.folder / "gpuworker" / "crew.py"
    path.write_text(path.read_text(encoding="utf-8").replace('"worker starts"', '"worker starts", copied=True'))
    await test_workers.test_a_worker_that_sleeps_past_its_time_changes_nothing(stage.scene)
    assert all(worker.logged("worker starts")[0]["copied"] for worker in stage.scene.workers)


@pytest.mark.parametrize("broken", VARIANTS.values(), ids=VARIANTS.keys())
async def test_what_is_broken_is_noticed(broken: Broken, stage: Stage) -> None:
    """Every program runs from a copy in which one line is changed."""
    run_from_a_copy(stage)
    path = stage.folder / broken.path
    text = path.read_text(encoding="utf-8")
    assert text.count(broken.right) == 1
    path.write_text(text.replace(broken.right, broken.wrong), encoding="utf-8")
    with pytest.raises(AssertionError) as noticed:
        await broken.notices(stage)
    assert "the load runs" not in str(noticed.value), "it fails by the fault, and not without it"
    workers = [*stage.scene.workers, *stage.own_scene.workers]
    assert any(worker.logged("engine ready") for worker in workers), "it was no failure to start"
