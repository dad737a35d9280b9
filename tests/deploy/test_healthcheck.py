"""The images' check of their health, on a server that answers as told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from redbatch.up.local_redis import free_port
from tests.deploy.dockerfile import ROOT

SCRIPT = ROOT / "docker" / "healthcheck.py"
READY = "/readyz?exclude=redis"
Check = Callable[..., bool]


@pytest.fixture
def statuses() -> dict[str, int]:
    """What is answered, by path."""
    return {"/livez": 200, READY: 503}


@pytest.fixture
def check(statuses: dict[str, int], tmp_path: Path) -> Iterator[Check]:
    """Runs the check; its home is where it has a container's /tmp."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses[self.path])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()

    def run(*first: str, port: int = server.server_port) -> bool:
        env = {"HOME": str(tmp_path), "REDBATCH_ADMIN_PORT": str(port)}
        return (
            subprocess.run([sys.executable, "-I", SCRIPT, *first], env=env, check=False, capture_output=True).returncode
            == 0
        )

    yield run
    server.shutdown()
    server.server_close()


def test_it_asks_whether_the_process_lives(check: Check, statuses: dict[str, int]) -> None:
    """And what is not there does not."""
    assert check()
    statuses["/livez"] = 503
    assert not check()
    assert not check(port=free_port())


def test_what_has_begun_to_serve_is_healthy_while_it_lives(check: Check, statuses: dict[str, int]) -> None:
    """Before, it is not; and after, no outage of others makes it ill."""
    assert not check(READY)
    statuses[READY] = 200
    assert check(READY)
    statuses[READY] = 503
    assert check(READY)
    statuses["/livez"] = 503
    assert not check(READY)
