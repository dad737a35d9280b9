"""The program of docs/models.md that compares vectors: what it says of another model, and of no server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpuworker.model_spec import parse_model
from tests.integration.documents.blocks import ROOT, python_files

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(120)]

FOLDER = parse_model("minilm").path


class OtherModel(BaseHTTPRequestHandler):
    """A gateway whose model has vectors of three numbers."""

    def do_POST(self) -> None:
        """Answers three vectors."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"embeddings": [[0.0] * 3] * 3}).encode())

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of such a gateway."""
    with HTTPServer(("127.0.0.1", 0), OtherModel) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def compare(url: str, folder: Path) -> list[str]:
    """Runs the program in a folder, where it fails; returns the lines of its error."""
    code = dict(python_files(ROOT / "docs" / "models.md"))["compare.py"]
    done = subprocess.run(
        [sys.executable, "-c", code, FOLDER, url], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1, done.stderr
    return [line for line in done.stderr.splitlines() if line and "Loading weights" not in line]


def test_another_model_is_one_line(url: str, tmp_path: Path) -> None:
    """Its vectors have another length: numpy's traceback would say that shapes do not match."""
    assert compare(url, tmp_path) == [f"{url} serves another model: vectors of 3 numbers, and {FOLDER} has 384"]


def test_no_server_is_one_line(tmp_path: Path) -> None:
    """As long as the cluster is not ready."""
    url = "http://127.0.0.1:9"
    assert compare(url, tmp_path) == [f"{url} does not answer: is the cluster ready?"]
