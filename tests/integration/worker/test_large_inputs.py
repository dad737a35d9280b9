"""Inputs that are too large for the socket between worker and engine go by memory that both share, and none is left."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.worker.worker_cluster import WorkerCluster
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

LARGE_CHARS = 100_000
MODEL = "simulated:base_ms=50,item_ms=0"


def shared(worker: Program) -> tuple[int, int]:
    """Returns how many memories the worker has mapped, and its open descriptors."""
    maps = Path(f"/proc/{worker.pid}/maps").read_text()
    return maps.count("memfd:redbatch"), psutil.Process(worker.pid).num_fds()


def named() -> set[str]:
    """Returns the memories that have a name."""
    return {path.name for path in Path("/dev/shm").iterdir()}  # noqa: S108 - looked at, not used


async def test_nothing_is_left_of_them_when_the_engine_dies(cluster: WorkerCluster) -> None:
    """Killed again and again with megabytes on their way to it: all are answered, and no memory and no file is left."""
    worker = await cluster.start_worker(MODEL, max_batch_size=4, claim_window=64)
    before, names = (0, 0), named()
    for strike in range(5):
        asked = await cluster.submit_many([[f"{strike} {i} " + "x" * LARGE_CHARS] for i in range(40)])
        await wait_until(cluster.has_entry_in_progress, "some have begun")
        deaths = len(worker.log_records("engine died"))
        for server in worker.descendants("redbatch forkserver"):
            for engine in server.children():
                engine.send_signal(signal.SIGKILL)
        await wait_until(lambda deaths=deaths: len(worker.log_records("engine died")) > deaths, "it died")  # type: ignore[misc]
        await cluster.check_replies(asked)
        before = before if strike else shared(worker)  # by now all connections are open
    assert await cluster.is_empty()
    assert before[0] == 1
    await wait_until(lambda: shared(worker) == before, lambda: f"{shared(worker)} is {before} again")
    assert named() == names
