"""The health check of the images, against a server with given answers."""

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
READY = "/readyz"
Check = Callable[..., bool]


@pytest.fixture
def statuses() -> dict[str, int]:
    """Returns the status of each path."""
    return {"/livez": 200, READY: 503}


@pytest.fixture
def check(statuses: dict[str, int], tmp_path: Path) -> Iterator[Check]:
    """Yields a function that runs the check with a home that represents the container's /tmp."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses[self.path])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            """Logs nothing."""

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


def test_it_requests_livez(check: Check, statuses: dict[str, int]) -> None:
    """The check passes if /livez answers 200, and fails with another status or without a server."""
    assert check()
    statuses["/livez"] = 503
    assert not check()
    assert not check(port=free_port())


def test_a_process_that_has_served_is_healthy_while_it_is_alive(check: Check, statuses: dict[str, int]) -> None:
    """The check fails before the process is ready, as when Redis never answered; later only /livez decides."""
    assert not check(READY)
    statuses[READY] = 200
    assert check(READY)
    statuses[READY] = 503
    assert check(READY)
    statuses["/livez"] = 503
    assert not check(READY)
