"""Workers that take turns on the GPUs of a pool. The simulated model uses no GPU, so a pool may have any number.

A test takes a GPU away by writing another holder into its slot.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gpuworker.engine.host_lock import HostLock
from shared.keys import PoolKeys
from shared.producer import queue_stats
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin, metric
from tests.processes import Program
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=20,item_ms=0"
OTHER = "other:0 1"
"""A holder, and its fence."""

HELD_S = 60
"""Longer than any test."""

WAIT_S = 0.5


@pytest_asyncio.fixture
async def pool(cluster: WorkerCluster) -> AsyncIterator[PoolKeys]:
    """A pool for one test, of which nothing is left."""
    keys = PoolKeys(cluster.keys.queue)
    yield keys
    pattern = keys.prefix.replace("{", "\\{") + "*"
    await cluster.raw.delete(keys.fence, *[key async for key in cluster.raw.scan_iter(match=pattern)])


async def start_sharing(cluster: WorkerCluster, pool: PoolKeys, name: str, **settings: object) -> Program:
    """Starts a worker that takes turns on the GPUs of a pool."""
    options = {"gpu_lease": "batch", "gpu_lease_wait_s": WAIT_S, "reclaim_idle_ms": 1_000} | settings
    return await cluster.start_worker(MODEL, ready=True, worker_id=name, gpu_lease_pool=pool.name, **options)


async def state_of(cluster: WorkerCluster, worker: str) -> str:
    """Returns the state in a worker's heartbeat; empty without one."""
    beats = (await queue_stats(cluster.connection, cluster.keys)).workers
    return next((beat.state for beat in beats if beat.worker == worker), "")


async def wait_for_state(cluster: WorkerCluster, worker: str, state: str) -> None:
    """Waits until a worker's heartbeat reports this state."""

    async def has_state() -> bool:
        return await state_of(cluster, worker) == state

    await wait_until(has_state, f"{worker} reports {state}")


async def test_a_worker_uses_each_gpu_of_the_pool(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """Without a named device it has an engine on each GPU: while another worker has one GPU, batches run on the other.

    The entries that the engine of the taken GPU has claimed go to the other engine.
    """
    worker = await start_sharing(cluster, pool, "both", gpu_lease_gpus=2, heartbeat_s=0.2)
    await wait_until(lambda: len(worker.log_records("engine ready")) == 2, "both engines are ready")
    assert {record["device"] for record in worker.log_records("worker starts")} == {"cuda:0", "cuda:1"}
    for taken in ("0.0", "1.0"):
        await cluster.raw.set(pool.slot(taken), OTHER, ex=HELD_S)
        await cluster.check_replies(await cluster.submit_many([[f"{taken} {i}"] for i in range(40)]))
        assert await cluster.raw.get(pool.slot(taken)) == OTHER.encode()
        await cluster.raw.delete(pool.slot(taken))
        await asyncio.gather(*(wait_for_state(cluster, name, "ready") for name in ("both-0", "both-1")))
    assert await worker.stop() == 0


async def test_a_slot_of_any_gpu_serves_an_engine_without_one(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """An engine on a CPU, which belongs to no GPU of the pool, takes whichever slot is free."""
    await start_sharing(cluster, pool, "any", device="cpu", gpu_lease_gpus=2)
    await cluster.raw.set(pool.slot("0.0"), OTHER, ex=HELD_S)
    await cluster.check_replies(await cluster.submit_many([["a"], ["b"]]))


@pytest.mark.parametrize("by", ["lease", "lock"])
async def test_entries_that_wait_too_long_for_a_gpu_go_to_another_worker(
    cluster: WorkerCluster, pool: PoolKeys, tmp_path: Path, by: str
) -> None:
    """For its lease, or for the lock of its host: the worker stands by, says so, and serves again when it has both."""
    starved = await start_sharing(cluster, pool, "starved", heartbeat_s=0.2, gpu_lease_dir=tmp_path)
    host_lock = HostLock(str(tmp_path))
    if by == "lease":
        await cluster.raw.set(pool.slot("0.0"), OTHER, ex=HELD_S)
    else:
        host_lock.acquire(f"{pool.name}-0.0")
    requests = await cluster.submit_many([[f"text {i}"] for i in range(20)])
    await wait_until(lambda: metric_is(starved, "redbatch_held_entries", 20), "it holds the entries")
    other = await cluster.start_worker(MODEL, worker_id="other", reclaim_idle_ms=60_000, heartbeat_s=0.2)
    await cluster.check_replies(requests)
    await wait_for_state(cluster, "starved", "standby")
    assert await metric(starved, "redbatch_handed_back_total") == 20
    assert await metric(other, 'redbatch_reclaimed_total{origin="released"}') == 20
    assert (await get_admin(starved, "/readyz")).status_code == 200
    host_lock.release()
    if by == "lease":
        await cluster.raw.delete(pool.slot("0.0"))
    await wait_for_state(cluster, "starved", "ready")
    assert await other.stop() == 0
    await cluster.check_replies(await cluster.submit_many([["later"]]))
    assert await metric(starved, "redbatch_inputs_total") == 1
    assert await cluster.is_empty()


async def test_the_only_worker_keeps_what_waits_for_a_gpu(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """No other worker could take the entries: it runs them as soon as it has the GPU, in their order."""
    worker = await start_sharing(cluster, pool, "only")
    await cluster.raw.set(pool.slot("0.0"), OTHER, ex=HELD_S)
    requests = await cluster.submit_many([["a"], ["b"]])
    await asyncio.sleep(4 * WAIT_S)
    await wait_for_state(cluster, "only", "ready")
    await cluster.raw.delete(pool.slot("0.0"))
    await cluster.check_replies(requests)
    assert await metric(worker, "redbatch_handed_back_total") == 0


async def test_two_starved_workers_answer_once_they_have_a_gpu(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """Whichever stands by, and even if both do."""
    await cluster.raw.set(pool.slot("0.0"), OTHER, ex=HELD_S)
    workers = [await start_sharing(cluster, pool, name, heartbeat_s=0.2) for name in ("one", "two")]
    requests = await cluster.submit_many([[f"text {i}"] for i in range(10)])
    await asyncio.sleep(6 * WAIT_S)

    def num_stood_by() -> list[int]:
        return [len(worker.log_records("no gpu in time: the worker stands by")) for worker in workers]

    await wait_until(lambda: max(num_stood_by()) == 1, lambda: f"one stands by, and says so once: {num_stood_by()}")
    await cluster.raw.delete(pool.slot("0.0"))
    await cluster.check_replies(requests)
    assert await cluster.is_empty()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": "cuda:0,cuda:2"}, "cuda:2 is not in the pool of 2"),
        ({"devices": "cuda:0,cuda:1", "gpu_lease": "exclusive"}, "with --gpu-lease=exclusive a worker has one device"),
    ],
)
async def test_devices_must_be_of_the_pool(
    cluster: WorkerCluster, pool: PoolKeys, settings: dict[str, str], message: str
) -> None:
    """A worker whose devices do not fit its pool ends with exit code 2 and says why."""
    options = {"gpu_lease": "batch", "gpu_lease_pool": pool.name, "gpu_lease_gpus": 2} | settings
    worker = await cluster.start_worker(MODEL, ready=False, **options)
    assert await worker.wait_until_ended(timeout_s=60) == 2
    assert message in worker.output


async def leases(cluster: WorkerCluster, *arguments: str) -> str:
    """Returns the output of `redbatch leases` for a user that may only read."""
    command = [sys.executable, "-m", "redbatch", "leases", "--redis-url", as_user(cluster.url, "ops"), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def pool_of(cluster: WorkerCluster, pool: PoolKeys) -> dict[str, Any]:
    """Returns the pool as `redbatch leases --json` shows it."""
    shown: dict[str, Any] = json.loads(await leases(cluster, "--pool", pool.name, "--json"))
    return shown


async def test_the_command_shows_holders_and_waiters(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """Of an exclusive lease and its standby, and of an engine that waits for its turn; as text and as JSON."""
    exclusive = {"gpu_lease": "exclusive", "gpu_lease_gpus": 2, "device": "cpu", "heartbeat_s": 0.2}
    for name in ("first", "second"):
        await start_sharing(cluster, pool, name, **exclusive)
    await cluster.start_worker(MODEL, ready=False, worker_id="standby", gpu_lease_pool=pool.name, **exclusive)
    await wait_for_state(cluster, "standby", "standby")
    values: list[Any] = [await cluster.raw.get(pool.slot(slot)) for slot in ("0.0", "1.0")]
    fences = [value.decode().split()[1] for value in values]
    shown = await pool_of(cluster, pool)
    left = [slot.pop("left_s") for slot in shown["slots"]]
    assert all(0 < each <= 15 for each in left)
    host = {"queue": cluster.keys.queue, "host": socket.gethostname()}
    assert shown == {
        "pool": pool.name,
        "slots": [
            {"slot": slot, "state": "held", "worker": worker, **host, "fence": int(fence)}
            for slot, worker, fence in zip(("0.0", "1.0"), ("first", "second"), fences, strict=True)
        ],
        "waiting": [{"worker": "standby", **host, "slots": ["0.0", "1.0"], "waits_s": None}],
    }
    text = await leases(cluster)
    assert f"Pool {pool.name}" in text
    assert [word for word in ("first", "second", "standby", *fences) if word not in text] == []


async def test_the_command_shows_who_waits_for_a_turn(cluster: WorkerCluster, pool: PoolKeys) -> None:
    """With the time that it has waited; a holder without a heartbeat has no queue. Then the slot is free."""
    await start_sharing(cluster, pool, "turns", device="cuda:0", gpu_lease_gpus=2)
    await cluster.raw.set(pool.slot("0.0"), OTHER, ex=HELD_S)
    request = await cluster.submit("waits")

    async def waits() -> bool:
        return bool((await pool_of(cluster, pool))["waiting"])

    await wait_until(waits, "it waits")
    shown = await pool_of(cluster, pool)
    (holder,) = shown["slots"]
    assert (holder["worker"], holder["queue"], holder["fence"]) == ("other", None, 1)
    (waiter,) = shown["waiting"]
    assert (waiter["worker"], waiter["slots"], waiter["waits_s"] > 0) == ("turns", ["0.0"], True)
    await cluster.raw.delete(pool.slot("0.0"))
    await cluster.check_replies([request])
    free = {"pool": pool.name, "slots": [{"slot": "0.0", "state": "free"}], "waiting": []}

    async def is_free() -> bool:
        return await pool_of(cluster, pool) == free

    await wait_until(is_free, "the worker has given the slot back")


async def metric_is(program: Program, name: str, value: float) -> bool:
    """Whether a metric has this value."""
    return await metric(program, name) == value
