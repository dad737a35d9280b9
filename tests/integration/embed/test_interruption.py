"""`redbatch embed` after a kill: it says what continues in the cluster, and the command that it prints cancels that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import redis

from shared.connection import RedisConnection
from tests.integration.embed.embed_command import command, create_key, embed
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

SLOW, SLOWER = "simulated:base_ms=0,item_ms=20", "simulated:base_ms=0,item_ms=100"
OPTIONS = ("--slice", "200", "--in-flight", "2")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of texts for two jobs, which take a slow worker some seconds."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"text {i}" for i in range(400)))
    return path


async def interrupt(
    gateway: GatewayProcess, source: Path, out: Path, number: int, *options: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command until it has created two jobs, sends it a signal, and returns how it ended."""
    words = command(gateway, source, out, *OPTIONS, *options)
    # A shell starts what runs in the background with SIGINT ignored, and so all that the suite starts then.
    process = subprocess.Popen(["env", "--default-signal=INT", *words], stderr=subprocess.PIPE, text=True)
    parts = out.with_name(f"{out.name}.part")
    await wait_until(lambda: len(list(parts.glob("*.job"))) == 2, "two jobs are created", timeout_s=60)
    process.send_signal(number)
    _, stderr = await asyncio.to_thread(process.communicate, timeout=30)
    return subprocess.CompletedProcess(process.args, process.returncode, "", stderr)


def cancel_line(stderr: str) -> str:
    """Returns the command that a run has printed to cancel its jobs."""
    [line] = [line for line in stderr.splitlines() if line.startswith("curl ")]
    return line


def statuses(cluster: GatewayCluster) -> list[str]:
    """Returns the statuses of all jobs of the queue."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2, decode_responses=True) as client:
        ids = client.zrange(cluster.keys.all_jobs, 0, -1)
        return [str(client.hget(cluster.keys.job(each), "status")) for each in ids]


@pytest.mark.parametrize(
    "end", [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")], ids=["SIGINT", "SIGTERM"]
)
async def test_a_stopped_run_names_its_jobs(
    cluster: GatewayCluster, connection: RedisConnection, source: Path, tmp_path: Path, end: tuple[int, int, str]
) -> None:
    """After Ctrl-C and SIGTERM it prints the command that cancels its two jobs, and ends with 128 + the signal."""
    number, code, word = end
    key = await create_key(connection, "jobs")
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on"), cluster.start_worker(SLOWER, max_batch_size=8))
    done = await interrupt(gateway, source, tmp_path / "v.npy", number, "--key", key)
    assert done.returncode == code, done.stderr
    assert word in done.stderr
    assert "run the same command again" in done.stderr
    assert "2 of its jobs may continue" in done.stderr
    assert "Traceback" not in done.stderr
    assert key not in done.stderr
    assert set(statuses(cluster)) <= {"queued", "running"}
    environment = os.environ | {"REDBATCH_API_KEY": key}
    words = ["bash", "-c", cancel_line(done.stderr)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True, env=environment)
    assert statuses(cluster) == ["cancelled"] * 2


async def test_the_next_run_names_the_jobs_of_a_killed_one(
    cluster: GatewayCluster, source: Path, tmp_path: Path
) -> None:
    """After SIGKILL, another command is refused and says what continues; the same one uses its jobs, and says so."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(SLOW, max_batch_size=8))
    out = tmp_path / "v.npy"
    assert (await interrupt(gateway, source, out, signal.SIGKILL)).returncode == -signal.SIGKILL
    other = await embed(gateway, source, out, "--slice", "10")
    assert other.returncode == 2
    assert "--force" in other.stderr
    same = await embed(gateway, source, out, *OPTIONS)
    assert same.returncode == 0, same.stderr
    assert "Resuming an earlier run" in same.stderr
    assert ("2 of its jobs may" in other.stderr, "of its jobs may" in same.stderr) == (True, False)
    assert statuses(cluster) == ["deleted"] * 2, "results that are saved were deleted, and no other job was created"
    assert np.isfinite(np.load(out)).all()


async def test_an_output_has_one_writer(cluster: GatewayCluster, source: Path, tmp_path: Path) -> None:
    """The same command beside the first one is refused, and the first one ends as it would alone."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(SLOW, max_batch_size=8))
    out = tmp_path / "v.npy"
    first = subprocess.Popen(command(gateway, source, out, *OPTIONS), stderr=subprocess.DEVNULL)
    parts = out.with_name(f"{out.name}.part")
    await wait_until(lambda: any(parts.glob("*.job")), "a job is created", timeout_s=60)
    second = await embed(gateway, source, out, *OPTIONS)
    assert second.returncode == 2
    assert f"another `redbatch embed` writes {out}" in second.stderr
    assert await asyncio.to_thread(first.wait, 60) == 0
    assert np.isfinite(np.load(out)).all()


async def test_a_discarded_run_names_its_jobs(cluster: GatewayCluster, source: Path, tmp_path: Path) -> None:
    """With --force, another command discards what a killed run stored, and prints how to cancel its jobs."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(SLOW, max_batch_size=8))
    out = tmp_path / "v.npy"
    await interrupt(gateway, source, out, signal.SIGKILL)
    source.write_text("a\nb\n")
    forced = await embed(gateway, source, out, "--force")
    assert forced.returncode == 0, forced.stderr
    assert "is discarded" in forced.stderr
    words = ["bash", "-c", cancel_line(forced.stderr)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True)
    assert set(statuses(cluster)) <= {"cancelled", "deleted", "done"}
