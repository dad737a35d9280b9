"""The shell and Python blocks of README and documents run as written, beside a cluster as `make run` starts it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from redbatch.up.local_redis import free_port
from tests import plain_http
from tests.integration.documents.blocks import DOCUMENTS, ELSEWHERE, ROOT, Block, blocks, python_files, reason_elsewhere
from tests.processes import Processes, Program
from tests.waiting import wait_until

SHELL = Path(__file__).with_name("shell.sh")
BLOCK_S = 120.0


class Place(NamedTuple):
    """Where the blocks of a document run."""

    folder: Path
    api: str
    redis_url: str
    environment: dict[str, str]

    def adapted(self, block: Block, server_port: int) -> str:
        """Returns the code with the addresses of this place and a model that is here."""
        own = re.search(r"^redbatch up\b", block.code, re.MULTILINE)
        code = block.code.replace("127.0.0.1:8080", f"127.0.0.1:{server_port}" if own else self.api)
        code = code.replace("redis://redis:6379/0", self.redis_url).replace("http://gateway:8080", f"http://{self.api}")
        code = code.replace("--host 0.0.0.0", "--host 127.0.0.1")
        return re.sub(r"(sentence-transformers/)?all-mpnet-base-v2", "null", code)

    def run(self, block: Block) -> str | None:
        """Runs a block and returns what went wrong, or None."""
        server_port = free_port()
        code = self.adapted(block, server_port)
        process = subprocess.Popen(
            [sys.executable, "-c", code] if block.is_python else ["bash", "-c", f'. "{SHELL}"\n{code}'],
            cwd=self.folder,
            env=self.environment | {"SERVER_PORT": str(server_port), "ADMIN_PORT": str(free_port())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=BLOCK_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        if process.returncode == 0:
            return None
        return f"{block}: exit code {process.returncode}:\n{block.code}---\n{output.decode(errors='replace')[-2_000:]}"


def activated() -> dict[str, str]:
    """Returns the environment of a terminal after `source .venv/bin/activate`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REDBATCH_", "XDG_"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return inherited | {"PATH": path, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}


def prepare(folder: Path) -> None:
    """Makes the files that the documents assume: a checkout's, an array, and the page's own Python files."""
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
    shutil.copy(ROOT / "docs" / "examples" / "squares.py", folder)
    np.save(folder / "array.npy", np.ones(3, np.float32))
    for name, code in python_files(ROOT / "docs" / f"{folder.name}.md"):
        (folder / name).write_text(code, encoding="utf-8")


def is_ready(program: Program) -> bool:
    """Whether `redbatch up` has printed its last fact."""
    return bool(re.search(r"^ *stop  ", program.output, re.MULTILINE))


def place_of(folder: Path, up: Program, temporary: Path) -> Place:
    """Returns a place with the addresses that `redbatch up` has printed."""
    [api] = re.findall(r"^ *API +http://(\S+)", up.output, re.MULTILINE)
    [redis_url] = re.findall(r"^ *Redis +(\S+)", up.output, re.MULTILINE)
    prepare(folder)
    state = {"STATE": str(folder / "state"), "PORT": api.rpartition(":")[2], "CLUSTER_REDIS": redis_url}
    short = {"TMPDIR": str(temporary), "REDBATCH_DURATION": "1s", "REDBATCH_WARMUP": "0s"}
    return Place(folder, api, redis_url, activated() | state | short)


async def serve_squares(processes: Processes, place: Place) -> None:
    """Starts the worker of docs/functions.md beside the cluster."""
    environment = place.environment | {
        "REDBATCH_REDIS_URL": place.redis_url,
        "REDBATCH_ADMIN_PORT": "0",
        "PYTHONPATH": f"{ROOT}:{place.folder}",
    }
    await processes.start("squares", "redbatch worker --model squares:Squares", environment)

    def served() -> bool:
        return "squares-squares" in plain_http.get(f"http://{place.api}/v1/models").text

    await wait_until(served, "the function is served", timeout_s=BLOCK_S, poll_s=0.1)


def files_for_git(place: Place, before: set[Path]) -> list[str]:
    """Returns what the blocks of a document have made that git would show as untracked in a checkout."""
    files = {path.relative_to(place.folder) for path in set(place.folder.rglob("*")) - before if path.is_file()}
    new = [str(path) for path in files if path.parts[0] != "state"]  # which shell.sh writes
    command = ["git", "check-ignore", "--no-index", "--stdin"]
    ignored = subprocess.run(command, input="\n".join(new), cwd=ROOT, capture_output=True, text=True, check=False)
    return sorted(set(new) - set(ignored.stdout.splitlines()))


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.starts_first
@pytest.mark.model
@pytest.mark.timeout(600)
async def test_the_commands_of_the_documents_run(tmp_path: Path) -> None:
    """Each block runs without an error, except those that need what `ELSEWHERE` lists.

    A block sees the files that earlier blocks of its document wrote. A new block that fails here either is wrong or
    belongs on the list. Git ignores what they write into a checkout.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    failures: list[str] = []
    async with Processes(tmp_path) as processes:
        environment = activated() | {"TMPDIR": str(temporary)}
        up = await processes.start("up", "redbatch up --port 0", environment)
        await processes.wait_until_ready(up, is_ready, timeout_s=2 * BLOCK_S)  # it loads the real model
        await serve_squares(processes, place_of(tmp_path / "squares", up, temporary))
        for document in DOCUMENTS:
            place = place_of(tmp_path / document.stem, up, temporary)
            before = set(place.folder.rglob("*"))
            runnable = [block for block in blocks(document) if reason_elsewhere(block.code) is None]
            results = [await asyncio.to_thread(place.run, block) for block in runnable]
            failures += filter(None, results)
            failures += [f"{document.name}: git does not ignore {path}" for path in files_for_git(place, before)]
    assert not failures, "\n\n".join(failures)


def test_a_block_that_fails_is_reported(tmp_path: Path) -> None:
    """A command in the middle of a block counts; its output is in the report."""
    place = Place(tmp_path, "127.0.0.1:1", "redis://127.0.0.1:1/0", activated() | {"STATE": str(tmp_path / "state")})
    assert place.run(Block("page.md", 1, "echo one\necho two\n")) is None
    assert place.run(Block("page.md", 1, "print(1)\n", is_python=True)) is None
    assert place.run(Block("page.md", 1, "print(1)\n[][0]\n", is_python=True)) is not None
    failure = place.run(Block("page.md", 7, "echo one\necho two | grep three\necho four\n"))
    assert failure is not None
    assert failure.startswith("page.md:7: exit code 1:")
    assert failure.endswith("one\n")


def test_the_commands_of_a_session_run_without_its_output(tmp_path: Path) -> None:
    """Blocks that show what commands print have these behind a dollar sign; blocks without a command do not run."""
    page = tmp_path / "page.md"
    page.write_text("```json\n{}\n```\n\n```\n$ echo one\none\n$ echo two  # more\n```\n\n```sh\necho $HOME\n```\n")
    found = [(block.line, block.code) for block in blocks(page)]
    assert found == [(5, "echo one\necho two  # more\n"), (11, "echo $HOME\n")]


def test_blocks_that_run_elsewhere_are_listed_with_their_need() -> None:
    """Each pattern of the list has a block, and most blocks without Docker and Kubernetes run."""
    every = [block for document in DOCUMENTS for block in blocks(document)]
    reasons = {reason_elsewhere(each.code) for each in every} - {None}
    assert reasons == set(ELSEWHERE.values())
    assert sum(reason_elsewhere(each.code) is None for each in every) > 20
