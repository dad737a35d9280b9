"""Several engines under one worker process: consumers of their own, each started again alone."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.worker.worker_cluster import House, admin, gather_checked, metric
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=20,item_ms=0"


def engines(house: House) -> dict[int, psutil.Process]:
    """Returns the engines of the first worker process, by pid."""
    servers = house.workers[0].descendants("redbatch forkserver")
    return {
        child.pid: child for server in servers for child in server.children() if child.status() != psutil.STATUS_ZOMBIE
    }


async def test_each_device_has_a_consumer_of_its_own(house: House) -> None:
    """Both serve under one admin port; when one engine is killed, the other stays, and every answer comes."""
    worker = await house.worker(MODEL, devices="cpu,cpu", worker_id="crew", max_batch_size=4)
    await wait_until(lambda: len(worker.logged("engine ready")) == 2, "both engines are ready")
    assert await house.names() == {"crew-0", "crew-1"}
    await gather_checked(house, [[[f"{call} {i}"] for i in range(40)] for call in range(5)])
    assert await house.consumers() == {"crew-0", "crew-1"}
    assert await metric(worker, "redbatch_inputs_total") == 200
    before = engines(house)
    assert len(before) == 2
    victim = next(iter(before.values()))
    asked = [await house.ask(f"later {i}") for i in range(20)]
    victim.send_signal(signal.SIGKILL)
    await house.check(asked)
    await wait_until(lambda: len(engines(house)) == 2, "another engine is started")
    assert set(before) - set(engines(house)) == {victim.pid}
    assert len(worker.logged("engine died")) == 1
    assert (await admin(worker, "/readyz")).status_code == 200
    assert await worker.stop() == 0
    assert await house.names() == set()
    assert await house.empty()


@pytest.mark.long
async def test_a_process_ends_when_none_of_its_devices_serves(house: House, tmp_path: Path) -> None:
    """With the exit code of a model that cannot be loaded; and all GPUs are none where there is no driver."""
    broken = await house.worker("./nowhere", devices="cpu,cpu", ready=False)
    assert await broken.exit(timeout_s=20) == 2
    (tmp_path / "config.json").write_text("{}")
    worker = await house.worker(str(tmp_path), ready=False, devices="cpu,cpu")
    assert await worker.exit(timeout_s=60) == 2
    assert "cannot be loaded" in worker.output


async def test_all_gpus_need_a_driver(house: House) -> None:
    """In one line that says what to do."""
    if Path("/dev/nvidia0").exists():
        pytest.skip("this host has a GPU")
    worker = await house.worker(devices="all", ready=False)
    assert await worker.exit(timeout_s=20) == 2
    assert "--devices all: no NVIDIA GPU is visible" in worker.output
