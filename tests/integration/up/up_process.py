"""A `redbatch up` that a test has started."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests import plain_http
from tests.servers import server_binary
from tests.waiting import wait_until

START_S = 60.0


@dataclass
class Up:
    """A running `redbatch up`."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path
    descendants: list[psutil.Process] = field(default_factory=list)

    @property
    def output(self) -> str:
        """All output so far."""
        return self.log.read_text()

    def fact(self, label: str) -> str:
        """Returns the printed value for a label, or "" before the cluster is ready."""
        lines = (line.strip() for line in self.output.splitlines())
        return next((line.removeprefix(label).strip() for line in lines if line.startswith(f"{label}  ")), "")

    def children(self, title: str = "") -> list[psutil.Process]:
        """Returns its direct children whose process title starts with `title`."""
        processes = running(psutil.Process(self.process.pid).children())
        return [child for child in processes if title_of(child).startswith(title)]

    def all_descendants(self) -> list[psutil.Process]:
        """Returns all of its descendants, with those found by earlier calls."""
        self.descendants += psutil.Process(self.process.pid).children(recursive=True)
        return self.descendants

    async def wait_until_ready(self) -> Up:
        """Waits until the cluster is ready; fails with its output otherwise."""
        try:
            await wait_until(lambda: bool(self.fact("stop")), "the cluster is ready", timeout_s=START_S)
        except AssertionError:
            pytest.fail(f"the cluster is not ready:\n{self.output}")
        return self

    async def wait_until_ended(self) -> int:
        """Waits until the process has ended and returns its exit code."""
        await wait_until(lambda: self.process.poll() is not None, "the process has ended", timeout_s=START_S)
        return self.process.returncode

    async def embed(self) -> list[float]:
        """Sends the request of the printed curl line, and returns the vector."""
        words = shlex.split(self.fact("try it"))
        headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
        async with plain_http.client() as client:
            answer = await client.post(words[2], content=words[words.index("-d") + 1], headers=headers, timeout=START_S)
        assert answer.status_code == 200, answer.text
        embedding: list[float] = answer.json()["embedding"]
        return embedding


def end(up: Up) -> None:
    """Kills all processes that still run."""
    if up.process.poll() is None:
        up.all_descendants()
        up.process.kill()
        up.process.wait()
    for each in running(up.descendants):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def kill_all(up: Up) -> None:
    """Kills `up` and all of its processes, Redis included, with SIGKILL."""
    processes = [psutil.Process(up.process.pid), *up.all_descendants()]
    for each in running(processes):
        with suppress(psutil.NoSuchProcess):  # children end with their parents
            each.kill()
    up.process.wait()
    psutil.wait_procs(processes, timeout=START_S)


def vector(text: str) -> list[float]:
    """Returns the vector of the null model for a text: the bytes of its SHA-256, divided by 255, repeated 12 times."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()] * 12


def title_of(process: psutil.Process) -> str:
    """Returns the title of a process in `ps`; "" if it has just ended."""
    try:
        return " ".join(process.cmdline()).strip()
    except psutil.Error:
        return ""


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Returns the processes that have not ended; a zombie has ended."""
    result: list[psutil.Process] = []
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                result.append(each)
    return result


async def serves(up: Up) -> bool:
    """Returns whether a request gets its vector."""
    try:
        return await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    except (httpx.TransportError, AssertionError):
        return False


async def run_command(up: Up, *words: str) -> tuple[int, str, str]:
    """Runs `redbatch` as the user of an `up`; returns exit code, stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "redbatch", *words),
        env=environment | {"TMPDIR": str(up.folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


@dataclass
class JoiningWorker:
    """A `redbatch worker` that was started beside an `up`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        """All output so far."""
        return self.log.read_text()

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded its model."""
        return "engine ready" in self.output


@contextmanager
def start_worker(up: Up, *words: str) -> Iterator[JoiningWorker]:
    """Starts a worker with the null model as the user of an `up`; kills it at the end of the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    log = up.log.with_name(f"{up.log.name}-worker-{len(words)}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "redbatch", "worker", "--model", "null", "--admin-port", "0", *words],
            env=environment | {"TMPDIR": str(up.folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield JoiningWorker(process, log)
    finally:
        process.kill()
        process.wait()


Start = Callable[..., Up]
"""Starts one, with arguments and variables."""


@contextmanager
def ups_in(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Yields a function that starts `redbatch up` in a folder, with the Redis server of the suite.

    Ends what still runs at the end of the block. Logs and temporary files are in `tmp_path`.
    """
    ups: list[Up] = []
    servers, temporary = tmp_path / "servers", tmp_path / "temporary"
    servers.mkdir()
    temporary.mkdir()
    (servers / "redis-server").symlink_to(server_binary())
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    variables |= {"PATH": f"{servers}:{os.environ['PATH']}", "TMPDIR": str(temporary)}

    def start(*arguments: str, **environment: str) -> Up:
        log = tmp_path / f"log-{len(ups)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "redbatch", "up", "--port", "0", "--model", "null", *arguments],
                cwd=folder,
                env=variables | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ups.append(Up(process, log, temporary))
        return ups[-1]

    try:
        yield start
    finally:
        for up in ups:
            end(up)
