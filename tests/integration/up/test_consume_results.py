"""The example that consumes the results of jobs, beside a `redbatch up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import plain_http
from tests.integration.up.up_process import START_S, Start, Up, kill_all, vector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/examples/consume_results.py"


async def store_one(up: Up, into: Path, text: str) -> None:
    """Submits a job with one text to an `up`, and waits until the example has stored its vector."""
    job = plain_http.post(f"{up.fact('API').split()[0]}/jobs", json={"texts": [text]}).json()["id"]
    file = into / f"{job.rpartition('.')[2]}.npy"
    await wait_until(file.exists, "the vector is stored", timeout_s=START_S)
    assert np.load(file)[0] == pytest.approx(vector(text), abs=1e-6)


async def test_it_finds_the_next_up(start: Start, tmp_path: Path) -> None:
    """After the end of its `up` it says that it waits for one, and reads on from the next, at another socket and port.

    So it does after a kill and after Ctrl-C.
    """
    arguments, into, log = ("--data-dir", str(tmp_path / "data")), tmp_path / "into", tmp_path / "consumer.log"
    up = await start(*arguments).wait_until_ready()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    variables |= {"TMPDIR": str(up.folder), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as file:
        words = [sys.executable, str(EXAMPLE), "--into", str(into)]
        consumer = subprocess.Popen(words, env=variables, stdout=file, stderr=subprocess.STDOUT)
    try:
        await store_one(up, into, "first")
        kill_all(up)
        for number in (1, 2):
            waiting = "waiting for a `redbatch up` to run"
            await wait_until(lambda: log.read_text().count(waiting) >= number, "it waits", timeout_s=START_S)  # noqa: B023
            assert "The next one is found by itself" in log.read_text()
            assert "To give options, end this program with Ctrl-C first." in log.read_text()
            up = await start(*arguments).wait_until_ready()
            await store_one(up, into, f"after {number}")
            assert log.read_text().count("Redis is back") == number
            up.process.send_signal(signal.SIGINT)
            assert await up.wait_until_ended() == 0
    finally:
        consumer.kill()
        consumer.wait()


async def test_it_reads_one_redis(start: Start, tmp_path: Path) -> None:
    """Beside an `up` with several it says what to do, instead of storing the results of some jobs only."""
    up = await start("--redis-shards", "2").wait_until_ready()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), "--into", str(tmp_path / "into")],
        env=variables | {"TMPDIR": str(up.folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert ended.returncode == 1
    assert "start this program for each of them with --redis-url and --queue null" in ended.stderr
