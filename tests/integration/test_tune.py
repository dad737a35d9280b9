"""`redbatch tune` as a user has it: on a simulated model, with a small search."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MODEL = "simulated:base_ms=5,item_ms=3"
SMALL = ("--duration", "300ms", "--warmup", "100ms", "--rounds", "1", "--max-clients", "8")
MIN_MS = 5.0  # the model sleeps so long for any batch


class Tune:
    """Runs the command in a folder of the test's own, where it puts its temporary files too.

    Args:
        folder: for both.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.said = ""

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Starts it."""
        pipe = asyncio.subprocess.PIPE
        clean = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "redbatch", "tune", "--model", MODEL, "--out", "tuned.json", *arguments),
            cwd=self.folder,
            env=clean
            | {"TMPDIR": str(self.temporary), "COLUMNS": "160", "REDBATCH_REDIS_URL": "redis://127.0.0.1:1/0"},
            stdout=pipe,
            stderr=pipe,
        )

    async def end(self, process: asyncio.subprocess.Process) -> int:
        """Waits for its end, keeps what it said, and returns the exit code."""
        said, complaint = await process.communicate()
        self.said = said.decode() + complaint.decode()
        assert process.returncode is not None
        return process.returncode

    def written(self) -> dict[str, Any]:
        """What it wrote."""
        found: dict[str, Any] = json.loads((self.folder / "tuned.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """The command, in an empty folder."""
    return Tune(tmp_path)


@pytest.mark.long
async def test_a_tight_budget_and_a_loose_one(tune: Tune) -> None:
    """No batch takes less than 5 ms, so 4 ms is more than can be had; 5 s is enough for anything. Of the wait alone."""
    search = ("--search", "max_batch_wait_ms", "--max-batch-size", "4")
    assert await tune.end(await tune.start("--p95-ms", "4", *SMALL, *search)) == 1, tune.said
    tight = tune.written()
    assert tight["recommended"] is None
    assert min(load["p95_ms"] for tried in tight["tried"] for load in tried["loads"]) >= MIN_MS
    assert "Nothing keeps p95 within 4 ms" in tune.said

    assert await tune.end(await tune.start("--p95-ms", "5000", *SMALL, *search)) == 0, tune.said
    loose = tune.written()
    assert loose["given"]["max_batch_size"] == "4"
    assert {name for tried in loose["tried"] for name in tried["setting"]} == {"max_batch_wait_ms"}
    assert loose["recommended"]["per_s"] > 0
    assert loose["recommended"]["clients"] > 1
    assert "Keep the defaults" in tune.said or "REDBATCH_MAX_BATCH_WAIT_MS=" in tune.said
    assert list(tune.temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_early_end_shows_what_was_found_and_leaves_nothing(tune: Tune, number: signal.Signals) -> None:
    """Neither a process nor a file of the cluster."""
    process = await tune.start("--p95-ms", "1000", "--duration", "300ms", "--warmup", "100ms")
    assert process.stderr is not None
    while b"defaults:" not in (line := await process.stderr.readline()):
        assert line, "it ended"
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 2
    process.send_signal(number)
    assert await tune.end(process) == 130, tune.said
    assert "Interrupted" in tune.said
    assert tune.written()["ended_early"]
    await wait_until(lambda: not any(each.is_running() for each in started), "all that it started has ended")
    assert list(tune.temporary.iterdir()) == []


@pytest.mark.long
async def test_a_model_that_cannot_be_loaded_is_a_line(tune: Tune) -> None:
    """Of a wrong name before anything is started; of one that is no model, what the worker said."""
    process = await tune.start("--p95-ms", "10", "--model", "simulated:base=1")
    assert await tune.end(process) == 2
    assert "write simulated:base_ms=5,item_ms=3" in tune.said
    (tune.folder / "empty").mkdir()
    assert await tune.end(await tune.start("--p95-ms", "10", "--model", "./empty")) == 1
    assert "model ./empty cannot be loaded" in tune.said
    assert "Traceback" not in tune.said


async def test_what_makes_no_sense_is_refused_at_once(tune: Tune) -> None:
    """In the words of the flag."""
    for arguments, expected in {
        ("--search", "colour"): "--search (REDBATCH_SEARCH)",
        ("--texts", "nowhere.txt"): "nowhere.txt",
        ("--out", "nowhere/tuned.json"): "its folder does not exist",
        ("--max-batch-size", "0"): "--max-batch-size",
    }.items():
        assert await tune.end(await tune.start("--p95-ms", "10", *arguments)) == 2
        assert expected in tune.said
