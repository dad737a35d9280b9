"""`redbatch embed` refuses what it cannot do, with an error that says what to do, and a non-zero exit code."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.embed.embed_command import embed
from tests.integration.gateway.gateway_cluster import GatewayCluster

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]


class OtherServer(BaseHTTPRequestHandler):
    """A web server that is no gateway, and answers every path with a page."""

    def do_GET(self) -> None:
        """Answers a page."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def do_POST(self) -> None:
        """Answers a page, after it has read the body."""
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def other_server() -> Iterator[str]:
    """The URL of a web server that is no gateway."""
    with HTTPServer(("127.0.0.1", 0), OtherServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with one text."""
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    return path


async def test_wrong_url_key_and_model_are_told_apart(
    cluster: GatewayCluster, source: Path, tmp_path: Path, other_server: str
) -> None:
    """Each has its own error, which names the option to correct, and leaves nothing behind."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    locked = await cluster.start_gateway(auth="on")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        cases = [
            (closed, (), "no gateway answers at this address (Connection refused)", "--url"),
            ("http://none.invalid", (), "no gateway answers at this address (", "--url"),
            (gateway.url.replace("http:", "https:"), (), "it does not speak TLS: write http://", "--url"),
            (other_server, (), "no gateway of Redbatch", "--url"),
            (f"{gateway.url}/embed", (), "no gateway of Redbatch", "--url"),
            (locked.url, (), "Send an API key", "--key"),
            (locked.url, ("--key", "a.b"), "unknown, was revoked", "--key"),
            (gateway.url, ("--model", "no-such-model"), f"no such model here. Served: {cluster.queue}", "--model"),
        ]
        results = [await embed(url, source, tmp_path / "v.npy", *options) for url, options, _, _ in cases]
    for done, (_, _, problem, option) in zip(results, cases, strict=True):
        assert done.returncode == 1, done.stderr
        assert problem in done.stderr
        assert option in done.stderr
        assert "Traceback" not in done.stderr
        assert "Errno" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


async def test_an_existing_output_is_kept_without_force(cluster: GatewayCluster, source: Path, tmp_path: Path) -> None:
    """An output is not replaced, nor the input, unless --force says so; then the rows are computed again."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    out = tmp_path / "v.npy"
    out.write_text("precious")
    done = await embed(gateway, source, out)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert out.read_text() == "precious"
    done = await embed(gateway, source, out, "--force")
    assert done.returncode == 0, done.stderr
    assert np.load(out).shape == (1, 384)
    same = tmp_path / "same.jsonl"
    same.write_text(json.dumps({"text": "a"}))
    done = await embed(gateway, same, same, "--force")
    assert done.returncode == 2
    assert same.read_text() == json.dumps({"text": "a"})


async def test_an_output_in_a_folder_that_does_not_exist_is_refused(source: Path, tmp_path: Path) -> None:
    """Its name may be misspelt, so no folder is made; the error says what to do."""
    out = tmp_path / "vectros" / "v.npy"
    done = await embed("http://127.0.0.1:9", source, out)
    assert (done.returncode, done.stderr) == (
        2,
        f"redbatch: --out: {out}: its folder does not exist: make it, or name another\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    with_input = await embed("http://127.0.0.1:9", "-", out, stdin=b"a\n")
    assert (with_input.returncode, out.parent.exists()) == (2, False)


async def test_a_file_without_any_valid_row_is_a_failure(cluster: GatewayCluster, tmp_path: Path) -> None:
    """If no row holds a text, the exit code is 1, and only the errors are written."""
    gateway = await cluster.start_gateway()
    (tmp_path / "a.jsonl").write_text("{\n17\n")
    done = await embed(gateway, tmp_path / "a.jsonl", tmp_path / "v.jsonl")
    assert done.returncode == 1
    assert "of 2 texts, 2 have no vector, the first is line 1: " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "v.jsonl.errors.jsonl"]


async def test_a_column_that_json_lacks_keeps_the_vectors(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Binary values cannot be in JSON: the error says so, and the same command without them needs no new job."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    source, out = tmp_path / "a.parquet", tmp_path / "v.jsonl"
    pq.write_table(pa.table({"text": ["a"], "raw": [b"\xff"], "id": [1]}), source)
    done = await embed(gateway, source, out)
    assert done.returncode == 2
    assert "--keep" in done.stderr
    assert not out.exists()
    done = await embed(gateway, source, out, "--keep", "id")
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["id"] == 1
