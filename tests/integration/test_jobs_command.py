"""`redbatch jobs`, and the example that works with the results of jobs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import redis
from typer.testing import CliRunner, Result

from redbatch.commands import app
from tests import plain_http
from tests.integration.gateway.house import Gateway, House, digits_of
from tests.processes import Processes
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/consume_results.py"


@pytest_asyncio.fixture
async def house(redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Processes of the test's own, around the test's queue."""
    async with Processes(tmp_path_factory.mktemp("house")) as processes:
        yield House(processes, redis_url, queue_name)


def taken(gateway: Gateway, texts: list[str]) -> str:
    """Makes a job; returns its id."""
    answer = plain_http.post(f"{gateway.url}/jobs", json={"texts": texts})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def status(gateway: Gateway, job: str) -> str:
    """Returns how a job is, once it has ended or a second has gone by."""
    return str(plain_http.get(f"{gateway.url}/jobs/{job}?wait=1").json()["status"])


async def command(house: House, *words: str) -> Result:
    """Runs `redbatch jobs`, in a thread: it has an event loop of its own."""
    where = ["--redis-url", as_user(house.redis_url, "admin"), "--queue", house.queue]
    return await asyncio.to_thread(CliRunner().invoke, app, ["jobs", *words, *where])


async def listed(house: House) -> list[dict[str, Any]]:
    """Returns the jobs that `list --json` tells of."""
    return [json.loads(line) for line in (await command(house, "list", "--json")).stdout.splitlines()]


async def test_jobs_are_looked_after(house: House, tmp_path: Path) -> None:
    """Listed, shown, cancelled, and their results written; what cannot be done is said."""
    gateway = await house.gateway()
    assert "0 jobs" in (await command(house, "list")).stdout
    first, second = taken(gateway, ["a", "", "b"]), taken(gateway, ["c"] * 40)
    assert [(each["id"], each["status"], each["n"]) for each in await listed(house)] == [
        (second, "queued", 40),
        (first, "queued", 3),
    ]
    assert (await command(house, "results", first, "-o", str(tmp_path / "v.npy"))).exit_code == 1
    assert "cancelled, 0 of 40" in (await command(house, "cancel", second)).stdout
    assert (await command(house, "cancel", second)).exit_code == 1
    assert (await command(house, "show", f"{house.queue}.{'0' * 32}")).exit_code == 1
    await house.worker()
    await wait_until(lambda: status(gateway, first) == "done", "it is done")
    table = (await command(house, "list")).stdout
    assert "2 jobs" in table
    assert first.rpartition(".")[2] in table.replace("\n", "")  # a test's queue has a long name
    shown = (await command(house, "show", first)).stdout
    assert "input 1" in shown
    assert "invalid_request: The text is empty." in shown
    told = json.loads((await command(house, "show", first.rpartition(".")[2], "--json")).stdout)
    assert (told["done"], told["failed"], told["errors"][0]["index"]) == (2, 1, 1)
    written = await command(house, "results", first, "-o", str(tmp_path / "v.npy"))
    assert "2 of 3 vectors of 384 numbers" in written.stdout
    vectors = np.load(tmp_path / "v.npy")
    assert [vectors[0].tobytes(), vectors[2].tobytes()] == [digits_of("a"), digits_of("b")]
    assert np.isnan(vectors[1]).all()


@pytest.mark.leaves_anything
async def test_the_example_consumer_survives_a_kill(house: House, tmp_path: Path) -> None:
    """However often it is killed: in the end there is a file for each job that is done, and it is whole."""
    gateway, _ = await asyncio.gather(house.gateway(), house.worker("simulated:base_ms=5,item_ms=0"))
    words = [sys.executable, str(EXAMPLE), "--redis", as_user(house.redis_url, "results"), "--queue", house.queue]
    words += ["--gateway", gateway.url, "--into", str(tmp_path)]
    jobs: dict[str, list[str]] = {}
    consumer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        for number in range(30):
            texts = [f"job {number} text {i}" for i in range(200)]
            jobs[taken(gateway, texts).rpartition(".")[2]] = texts
            await asyncio.sleep(0.05)
            if number % 6 == 5:
                consumer.send_signal(signal.SIGKILL)
                consumer.wait()
                consumer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        await wait_until(
            lambda: {path.stem for path in tmp_path.glob("*.npy")} == set(jobs), "all are there", timeout_s=60
        )
    finally:
        consumer.kill()
        consumer.wait()
    for job, texts in jobs.items():
        assert [row.tobytes() for row in np.load(tmp_path / f"{job}.npy")] == list(map(digits_of, texts))
    with redis.Redis.from_url(house.redis_url, protocol=2) as client:
        assert client.xpending(house.keys.results, "downstream")["pending"] <= 10
