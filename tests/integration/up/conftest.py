"""Fixtures of the tests of `redbatch up`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.up_process import (
    Start,
    Up,
    end,
)
from tests.servers import server_binary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of the user."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Starts `redbatch up` in an empty folder with the Redis server of the suite. Ends leftovers of a failing test."""
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

    yield start
    for up in ups:
        end(up)
