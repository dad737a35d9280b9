"""Several engines under one worker process: each has its own consumer and is restarted independently."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuworker.gpu.devices import lists_all
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin, metric, submit_and_check
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
MODEL = "simulated:base_ms=20,item_ms=0"


def engines(cluster: WorkerCluster) -> dict[int, psutil.Process]:
    """Returns the engines of the first worker process, by pid."""
    servers = cluster.workers[0].descendants("redbatch forkserver")
    return {
        child.pid: child for server in servers for child in server.children() if child.status() != psutil.STATUS_ZOMBIE
    }


async def test_each_device_has_its_own_consumer(cluster: WorkerCluster) -> None:
    """Two devices share one admin port; if one engine is killed, the other stays, and all entries are answered."""
    worker = await cluster.start_worker(MODEL, devices="cpu,cpu", worker_id="group", max_batch_size=4)
    await wait_until(lambda: len(worker.log_records("engine ready")) == 2, "both engines are ready")
    assert await cluster.live_workers() == {"group-0", "group-1"}
    await submit_and_check(cluster, [[[f"{call} {i}"] for i in range(40)] for call in range(5)])
    assert await cluster.consumers() == {"group-0", "group-1"}
    assert await metric(worker, "redbatch_inputs_total") == 200
    before = engines(cluster)
    assert len(before) == 2
    victim = next(iter(before.values()))
    requests = [await cluster.submit(f"later {i}") for i in range(20)]
    victim.send_signal(signal.SIGKILL)
    await cluster.check_replies(requests)
    await wait_until(lambda: len(engines(cluster)) == 2, "a new engine has started")
    assert set(before) - set(engines(cluster)) == {victim.pid}
    assert len(worker.log_records("engine died")) == 1
    assert (await get_admin(worker, "/readyz")).status_code == 200
    assert await worker.stop() == 0
    assert await cluster.live_workers() == set()
    assert await cluster.is_empty()


@pytest.mark.long
async def test_a_process_without_a_serving_device_ends(cluster: WorkerCluster, tmp_path: Path) -> None:
    """If no device can load the model, the process ends with exit code 2, as for one device."""
    broken = await cluster.start_worker("./nowhere", devices="cpu,cpu", ready=False)
    assert await broken.wait_until_ended(timeout_s=60) == 2
    (tmp_path / "config.json").write_text("{}")
    worker = await cluster.start_worker(str(tmp_path), ready=False, devices="cpu,cpu")
    assert await worker.wait_until_ended(timeout_s=60) == 2
    assert "cannot be loaded" in worker.output


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"devices": "all"}, "--devices all"),
        ({"device": "cuda:1", "model": "minilm"}, "--device cuda:1"),
        ({"devices": "0,1", "span": True, "model": "squares:Squares"}, "--devices 0,1"),
    ],
)
async def test_gpus_need_a_driver(cluster: WorkerCluster, settings: dict[str, Any], option: str) -> None:
    """Without an NVIDIA driver, a GPU that is named ends the worker with exit code 2 and a line with the cause."""
    if not lists_all([], None):
        pytest.skip("this host has a GPU")
    worker = await cluster.start_worker(**settings, ready=False)
    assert await worker.wait_until_ended(timeout_s=60) == 2
    assert f"{option}: no NVIDIA GPU is visible" in worker.output


async def test_an_old_name_of_a_mig_device_needs_no_listed_gpu(
    cluster: WorkerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver lists it under another name: whether it is there is for the libraries in the engine to say."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-8d5f1c2e-3a4b-5c6d-7e8f-90a1b2c3d4e5/1/0")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'docs' / 'examples'}")
    worker = await cluster.start_worker("squares:Squares", device="cuda")
    assert await worker.stop() == 0
