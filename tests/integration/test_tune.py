"""`redbatch tune` as a separate process, on a simulated model, with a small search."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from redbatch.up.run_file import Announcement, RunFile
from tests.integration.up.up_process import title_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MODEL = "simulated:base_ms=5,item_ms=3"
SMALL = ("--duration", "300ms", "--warmup", "100ms", "--rounds", "1", "--max-clients", "8")
MIN_MS = 5.0  # minimum duration of any batch of the model


class Tune:
    """Runs the command in a private folder, which also contains its temporary files.

    Args:
        folder: working directory of the command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.printed = self.output = ""

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Starts the command."""
        pipe = asyncio.subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
        # A shell starts what runs in the background with SIGINT ignored, and so all that the suite starts then.
        return await asyncio.create_subprocess_exec(
            *("env", "--default-signal=INT", sys.executable, "-P", "-m", "redbatch", "tune"),
            *("--model", MODEL, "--out", "tuned.json", *arguments),
            cwd=self.folder,
            env=environment
            | {"TMPDIR": str(self.temporary), "XDG_RUNTIME_DIR": str(self.folder), "COLUMNS": "160"}
            | {"REDBATCH_REDIS_URL": "redis://127.0.0.1:1/0"},
            stdout=pipe,
            stderr=pipe,
        )

    async def end(self, process: asyncio.subprocess.Process) -> int:
        """Waits for its end, keeps its output, and returns the exit code."""
        stdout, stderr = await process.communicate()
        self.printed = stdout.decode()
        self.output = self.printed + stderr.decode()
        assert process.returncode is not None
        return process.returncode

    def written(self) -> dict[str, Any]:
        """Returns the JSON that the command wrote."""
        written: dict[str, Any] = json.loads((self.folder / "tuned.json").read_text(encoding="utf-8"))
        return written


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """Returns the command in an empty folder."""
    return Tune(tmp_path)


@pytest.mark.long
async def test_a_tight_budget_and_a_loose_one(tune: Tune) -> None:
    """No candidate keeps 4 ms, because every batch takes 5 ms; 5 s is enough. Only the wait is searched."""
    search = ("--search", "max_batch_wait_ms", "--max-batch-size", "4")
    assert await tune.end(await tune.start("--p95-ms", "4", *SMALL, *search)) == 1, tune.output
    tight = tune.written()
    assert tight["recommended"] is None
    assert min(load["p95_ms"] for tried in tight["tried"] for load in tried["loads"]) >= MIN_MS
    assert "Nothing keeps p95 within 4 ms" in tune.output

    assert await tune.end(await tune.start("--p95-ms", "5000", *SMALL, *search)) == 0, tune.output
    loose = tune.written()
    assert loose["given"]["max_batch_size"] == "4"
    assert {name for tried in loose["tried"] for name in tried["setting"]} == {"max_batch_wait_ms"}
    assert loose["recommended"]["per_s"] > 0
    assert loose["recommended"]["clients"] > 1
    assert "Keep the defaults" in tune.output or "REDBATCH_MAX_BATCH_WAIT_MS=" in tune.output
    assert list(tune.temporary.iterdir()) == []


@pytest.mark.parametrize(("signal_number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
async def test_an_interruption_shows_the_results_so_far_and_leaves_nothing(
    tune: Tune, signal_number: signal.Signals, name: str
) -> None:
    """An interrupted search leaves neither a process nor a file of the cluster."""
    process = await tune.start("--p95-ms", "1000", "--duration", "300ms", "--warmup", "100ms")
    assert process.stderr is not None
    while b"defaults:" not in (line := await process.stderr.readline()):
        assert line, "the search ended"
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 2
    process.send_signal(signal_number)
    assert await tune.end(process) == 130, tune.output
    assert f"Interrupted by {name}: the best candidate has not run in all rounds" in tune.output
    assert tune.written()["ended_early"]
    await wait_until(lambda: not any(each.is_running() for each in started), "all processes of the search have ended")
    assert list(tune.temporary.iterdir()) == []


async def test_an_error_is_no_interruption(tune: Tune) -> None:
    """If its gateway is lost, the result says that an error ended the search, and which."""
    process = await tune.start("--p95-ms", "1000", "--duration", "300ms", "--warmup", "100ms")
    assert process.stderr is not None
    while b"defaults:" not in (line := await process.stderr.readline()):
        assert line, "the search ended"
    for each in psutil.Process(process.pid).children(recursive=True):
        if title_of(each).startswith("redbatch gateway"):
            each.kill()
    assert await tune.end(process) == 1, tune.output
    assert re.search(r"Ended by an error \(.+\): the best candidate has not run in all rounds", tune.output)


@pytest.fixture
def running_up(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A running `redbatch up`, as far as other commands see it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tune.folder))
    announcement = Announcement(RunFile(os.getpid(), "http://127.0.0.1:8123", "redis://127.0.0.1:1/0", "null"))
    yield
    announcement.withdraw()


@pytest.mark.usefixtures("running_up")
async def test_a_running_up_is_refused(tune: Tune) -> None:
    """A `redbatch up` on the same machine would disturb the loads: it is to be stopped, or accepted with an option."""
    assert await tune.end(await tune.start("--p95-ms", "1000", *SMALL)) == 2, tune.output
    for part in ("`redbatch up` runs here too", "stop http://127.0.0.1:8123 first", "--beside-up"):
        assert part in tune.output
    assert list(tune.temporary.iterdir()) == []


@pytest.mark.usefixtures("running_up")
async def test_a_running_up_that_is_accepted_is_a_warning(tune: Tune) -> None:
    """The first line says that it disturbs the loads, and the result repeats it."""
    process = await tune.start("--p95-ms", "1000", "--beside-up", "--json", *SMALL)
    assert process.stderr is not None
    warning = (await process.stderr.readline()).decode().strip()
    assert warning.startswith("warning: `redbatch up` runs here too")
    assert "http://127.0.0.1:8123" in warning
    while b"defaults:" not in (line := await process.stderr.readline()):
        assert line, "the search ended"
    process.send_signal(signal.SIGINT)
    assert await tune.end(process) == 130, tune.output
    assert json.loads(tune.printed) == tune.written()
    assert warning in [f"warning: {each}" for each in tune.written()["warnings"]]


@pytest.mark.long
async def test_a_model_that_cannot_be_loaded_is_reported_in_one_line(tune: Tune) -> None:
    """A wrong name is refused before anything starts; a folder without a model ends with the worker's message."""
    process = await tune.start("--p95-ms", "10", "--model", "simulated:base=1")
    assert await tune.end(process) == 2
    assert "write simulated:base_ms=5,item_ms=3" in tune.output
    (tune.folder / "empty").mkdir()
    assert await tune.end(await tune.start("--p95-ms", "10", "--model", "./empty")) == 1
    assert "model ./empty cannot be loaded" in tune.output
    assert "Traceback" not in tune.output


async def test_invalid_arguments_are_refused_at_once(tune: Tune) -> None:
    """Invalid arguments are refused at once, with the name of the flag."""
    for arguments, expected in {
        ("--search", "colour"): "--search (REDBATCH_SEARCH)",
        ("--texts", "nowhere.txt"): "nowhere.txt",
        ("--out", "nowhere/tuned.json"): "its folder does not exist",
        ("--max-batch-size", "0"): "--max-batch-size",
    }.items():
        assert await tune.end(await tune.start("--p95-ms", "10", *arguments)) == 2
        assert expected in tune.output
