"""Inputs too large for the socket between worker and engine use shared memory, which is freed."""

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


def mapped_memory(worker: Program) -> tuple[int, int]:
    """Returns the number of shared memories that the worker has mapped, and of its open file descriptors."""
    maps = Path(f"/proc/{worker.pid}/maps").read_text()
    return maps.count("memfd:redbatch"), psutil.Process(worker.pid).num_fds()


def named_memory() -> set[str]:
    """Returns the names of shared memories with a name."""
    return {path.name for path in Path("/dev/shm").iterdir()}  # noqa: S108 - listed, not written


async def test_shared_memory_is_freed_when_the_engine_dies(cluster: WorkerCluster) -> None:
    """If the engine is killed repeatedly with megabytes in transfer, all entries are answered, and no memory leaks."""
    worker = await cluster.start_worker(MODEL, max_batch_size=4, claim_window=64)
    before, names = (0, 0), named_memory()
    for round_ in range(5):
        requests = await cluster.submit_many([[f"{round_} {i} " + "x" * LARGE_CHARS] for i in range(40)])
        await wait_until(cluster.has_entry_in_progress, "an entry is running")
        deaths = len(worker.log_records("engine died"))
        for server in worker.descendants("redbatch forkserver"):
            for engine in server.children():
                engine.send_signal(signal.SIGKILL)
        await wait_until(lambda deaths=deaths: len(worker.log_records("engine died")) > deaths, "the engine died")  # type: ignore[misc]
        await cluster.check_replies(requests)
        before = before if round_ else mapped_memory(worker)  # after the first round all connections are open
    assert await cluster.is_empty()
    assert before[0] == 3  # for frames in both directions, and the run table
    await wait_until(lambda: mapped_memory(worker) == before, lambda: f"{mapped_memory(worker)} is {before} again")
    assert named_memory() == names
