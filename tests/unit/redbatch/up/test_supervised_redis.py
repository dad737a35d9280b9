"""The supervised Redis server, in an event loop that must not wait for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbatch.up import supervised_redis
from redbatch.up.data_dir import DataDir
from redbatch.up.supervised_redis import SupervisedRedis
from tests.fake_redis import make_fake_redis
from tests.unit.redbatch.up.test_supervisor import CallbackRecorder, gone
from tests.waiting import wait_until

MAX_BYTES = 100_000_000


@pytest.fixture(autouse=True)
def fake_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the fake server on the PATH."""
    program = make_fake_redis(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDir]:
    """A folder with data, which take long to load."""
    with DataDir(tmp_path / "data") as folder:
        yield folder


async def test_a_start_can_be_cancelled_while_the_data_load(data: DataDir) -> None:
    """The event loop goes on meanwhile, and `stop` ends the server."""
    server = SupervisedRedis(CallbackRecorder(), MAX_BYTES, data)
    start = asyncio.create_task(server.start())
    await wait_until((data.path / "contacted").exists, "the server loads its data")
    start.cancel()
    await asyncio.wait([start])
    await server.stop()
    (pid,) = (data.path / "starts").read_text().split()
    assert start.cancelled()
    assert gone(int(pid))


async def test_a_long_load_is_reported_once(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what the user waits for; the start ends with the load."""
    monkeypatch.setattr(supervised_redis, "NOTICE_AFTER_S", 0.0)
    recorder = CallbackRecorder()
    server = SupervisedRedis(recorder, MAX_BYTES, data)
    start = asyncio.create_task(server.start())
    await wait_until((data.path / "contacted").exists, "the server loads its data")
    await wait_until(lambda: bool(recorder.events), "it is reported")
    (data.path / "loaded").touch()
    path = (await start).removeprefix("unix://")
    await server.stop()
    assert recorder.events == [f"at {path} still loads the data that it kept"]


async def test_the_warning_about_forks_is_for_those_who_keep_data(data: DataDir) -> None:
    """A server with kept data forks to rewrite them; one without data never does."""
    (data.path / "loaded").touch()
    warnings: list[list[str]] = []
    for data_dir in (data, None):
        recorder = CallbackRecorder()
        server = SupervisedRedis(recorder, MAX_BYTES, data_dir)
        await server.start()
        await server.stop()
        warnings.append([json.loads(line)["msg"] for line in recorder.lines])
    assert warnings == [["WARNING Memory overcommit must be enabled!"], []]
