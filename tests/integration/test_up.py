"""`redbatch up` as a user has it: a real process with its own Redis, gateways and workers, and the null model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from tests import plain_http
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]
START_S = 30.0
TITLES = ("redbatch gateway", "redbatch worker")


@dataclass
class Up:
    """A running `redbatch up`."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path
    seen: list[psutil.Process] = field(default_factory=list)

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self.log.read_text()

    def fact(self, label: str) -> str:
        """What stands behind a label where it says how to use it; "" before it is ready."""
        lines = (line.strip() for line in self.output.splitlines())
        return next((line.removeprefix(label).strip() for line in lines if line.startswith(f"{label}  ")), "")

    def children(self, title: str = "") -> list[psutil.Process]:
        """Its direct children whose process title begins so."""
        found = running(psutil.Process(self.process.pid).children())
        return [child for child in found if title_of(child).startswith(title)]

    def family(self) -> list[psutil.Process]:
        """All processes that came of it."""
        self.seen += psutil.Process(self.process.pid).children(recursive=True)
        return self.seen

    async def ready(self) -> Up:
        """Waits until it says how to use it."""
        try:
            await wait_until(lambda: bool(self.fact("stop")), "it is ready", timeout_s=START_S)
        except AssertionError:
            pytest.fail(f"it is not ready:\n{self.output}")
        return self

    async def ended(self) -> int:
        """Waits until it has ended and returns its exit code."""
        await wait_until(lambda: self.process.poll() is not None, "it has ended", timeout_s=START_S)
        return self.process.returncode

    async def embed(self) -> list[float]:
        """Sends what the printed curl line would send, and returns the vector."""
        words = shlex.split(self.fact("try it"))
        headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
        async with plain_http.client() as client:
            answer = await client.post(words[2], content=words[words.index("-d") + 1], headers=headers, timeout=START_S)
        assert answer.status_code == 200, answer.text
        embedding: list[float] = answer.json()["embedding"]
        return embedding


Start = Callable[..., Up]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the user stands in."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Starts `redbatch up` in an empty folder, on the suite's Redis server. Whatever a failing test leaves is ended."""
    started: list[Up] = []
    servers, temporary = tmp_path / "servers", tmp_path / "temporary"
    servers.mkdir()
    temporary.mkdir()
    (servers / "redis-server").symlink_to(server_binary())
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    variables |= {"PATH": f"{servers}:{os.environ['PATH']}", "TMPDIR": str(temporary)}

    def start(*arguments: str, **environment: str) -> Up:
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "redbatch", "up", "--port", "0", "--model", "null", *arguments],
                cwd=folder,
                env=variables | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(Up(process, log, temporary))
        return started[-1]

    yield start
    for up in started:
        end(up)


def end(up: Up) -> None:
    """Kills what still runs."""
    if up.process.poll() is None:
        up.family()
        up.process.kill()
        up.process.wait()
    for each in running(up.seen):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def vector(text: str) -> list[float]:
    """What the null model makes of a text: the bytes of its SHA-256, each divided by 255, twelve times over."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()] * 12


def title_of(process: psutil.Process) -> str:
    """What `ps` shows of a process; "" when it has just ended."""
    try:
        return " ".join(process.cmdline()).strip()
    except psutil.Error:
        return ""


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; one that nobody has waited for yet has."""
    found: list[psutil.Process] = []
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


async def test_it_serves_and_leaves_nothing(start: Start) -> None:
    """The printed request works, `ps` shows what runs, Ctrl-C ends it with 0, and no process or folder is left."""
    up = await start("--gateways", "2", "--workers", "2").ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    await wait_until(lambda: [len(up.children(title)) for title in TITLES] == [2, 2], "all have their titles")
    family = up.family()
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == 0
    assert running(family) == []
    assert list(up.folder.iterdir()) == []


async def test_where_keys_are_asked_for_it_makes_one(start: Start) -> None:
    """In the Redis of its own, in which nobody else could have; the printed request has it."""
    up = await start("--auth", "on").ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    assert up.fact("key") in up.fact("try it")
    url = up.fact("API").split(" ")[0]
    assert plain_http.post(f"{url}/embed", json={"text": "a"}).status_code == 401
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == 0


async def test_the_printed_redis_line_shows_the_queue(start: Start) -> None:
    """Pasted into a shell, with its quotes, it asks the stream's length; nothing waits."""
    up = await start().ready()
    words = shlex.split(up.fact("queue"))
    assert words[1:3] == ["-u", up.fact("Redis")]
    assert words[3:] == ["XLEN", "rb:{null}:q:interactive"]
    with redis.Redis.from_url(up.fact("Redis"), protocol=2) as client:
        assert client.execute_command(*words[3:]) == 0


async def test_redbatch_queue_finds_it(start: Start) -> None:
    """Without a URL, `redbatch queue` shows the workers of this user's `up`."""
    up = await start("--workers", "2").ready()
    environment = {**os.environ, "TMPDIR": str(up.folder)}
    environment.pop("XDG_RUNTIME_DIR", None)

    async def workers() -> list[str]:
        command = [sys.executable, "-P", "-m", "redbatch", "queue", "--json"]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0
        return [worker["state"] for worker in json.loads(output)["workers"]]

    async def both_ready() -> bool:
        return await workers() == ["ready", "ready"]

    await wait_until(both_ready, "both workers are shown as ready", timeout_s=START_S)


@pytest.mark.parametrize("title", ["redbatch worker", "redbatch gateway", ""])
async def test_what_dies_is_started_again(title: str, start: Start) -> None:
    """A killed worker, gateway or Redis (no title of ours: its own) has a successor, and requests are served again."""
    up = await start().ready()
    children = up.children(title) if title else [each for each in up.children() if each not in up.children("redbatch")]
    (victim,) = children
    before = {each.pid for each in up.children()}
    victim.kill()
    await wait_until(lambda: len({each.pid for each in up.children()} - before) == 1, "it has a successor")
    await wait_until(lambda: again(up), "it serves again", timeout_s=START_S)


async def again(up: Up) -> bool:
    """Says whether a request is served."""
    try:
        return await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    except (httpx.TransportError, AssertionError):
        return False


async def test_a_killed_up_takes_its_children_along(start: Start) -> None:
    """The kernel ends what a supervisor ended by kill -9 can no longer stop."""
    up = await start("--workers", "2").ready()
    family = up.family()
    up.process.kill()
    up.process.wait()
    await wait_until(lambda: running(family) == [], "all of its processes are gone", timeout_s=START_S)


async def test_a_second_ctrl_c_kills(start: Start) -> None:
    """Who cannot wait for the drain presses Ctrl-C again; nothing is left all the same."""
    up = await start("--drain-delay-s", "60").ready()
    family = up.family()
    up.process.send_signal(signal.SIGINT)
    await wait_until(lambda: "Ctrl-C again" in up.output, "it drains")
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == 130
    assert running(family) == []
    assert list(up.folder.iterdir()) == []


async def test_a_model_that_cannot_be_loaded_ends_it(start: Start) -> None:
    """No endless restarts: the reason, once, as the last line, and exit code 1."""
    up = start("--model", "/nowhere/model")
    assert await up.ended() == 1
    last = up.output.splitlines()[-1]
    assert last.startswith("redbatch: worker-1 cannot run: ")
    assert "/nowhere/model" in last
    assert "starting again" not in up.output
    assert list(up.folder.iterdir()) == []


async def test_a_taken_port_is_one_line(start: Start) -> None:
    """It says what to do, and exits with 1 before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        up = start("--port", str(other.getsockname()[1]))
        assert await up.ended() == 1
    (line,) = up.output.splitlines()
    assert "--port" in line


@pytest.mark.parametrize("environment", [{}, {"PYTHONPATH": "."}])
async def test_the_callers_packages_do_not_win(environment: dict[str, str], folder: Path, start: Start) -> None:
    """Somebody's own api, gpuworker and shared in the folder where they start it are left alone by every process."""
    for name in ("api", "gpuworker", "shared"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('imported from the current folder')")
    up = await start(**environment).ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    assert "imported from the current folder" not in up.output


async def test_every_setting_is_a_flag(start: Start) -> None:
    """A flag of `up` reaches the process that it is for."""
    up = await start("--max-input-chars", "3", "--max-batch-wait-ms", "1").ready()
    async with plain_http.client() as client:
        answer = await client.post(f"{up.fact('API').split()[0]}/embed", json={"text": "four"})
    assert answer.status_code == 413
