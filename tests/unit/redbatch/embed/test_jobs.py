"""Embedding as jobs: the body of a job with options, and what its status reports."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from redbatch.embed.checkpoint import Checkpoint, TaskIdentity
from redbatch.embed.gateway_client import GatewayClient
from redbatch.embed.jobs import JobEmbedder
from redbatch.embed.readers import TXT, InputFile
from redbatch.embed.session import Embedded

STATUS = {"id": "q.1", "status": "done", "done": 2, "failed": 0, "errors": [], "revisions": ["r"]}


class Gateway:
    """A gateway behind a prefix, of which each job is done at once."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.types: list[str] = []
        self.queries: list[dict[str, str]] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answers a request."""
        if request.method == "POST":
            assert request.url.path == "/prefix/jobs"
            self.bodies.append(request.content)
            self.types.append(request.headers["content-type"])
            self.queries.append(dict(request.url.params))
            return httpx.Response(202, json={"id": "q.1", "status_url": "/prefix/jobs/q.1"})
        if request.url.path == "/prefix/jobs/q.1":
            return httpx.Response(200, json=STATUS | {"truncated_inputs": 1})
        assert request.url.path == "/prefix/jobs/q.1/result"
        file = io.BytesIO()
        np.save(file, np.ones((2, 3), dtype="<f4"))
        return httpx.Response(200, content=file.getvalue())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """An open checkpoint."""
    source = tmp_path / "a.txt"
    source.write_text("a\nb\n")
    task = TaskIdentity.of(InputFile(source, TXT, "text", "a.txt"), "http://gateway/prefix", None, 2, {})
    checkpoint = Checkpoint(tmp_path / "v.npy", task)
    checkpoint.open()
    return checkpoint


def run(gateway: Gateway, checkpoint: Checkpoint, fields: dict[str, Any]) -> Embedded:
    """Returns what the embedder returns for two texts."""

    async def embed() -> Embedded:
        transport = httpx.MockTransport(gateway.handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway/prefix/") as client:
            return await JobEmbedder(GatewayClient(client), checkpoint, fields).embed(0, ["a", "b"], lambda _: None)

    return asyncio.run(embed())


def test_options_are_in_the_query(checkpoint: Checkpoint) -> None:
    """The texts are lines, which a gateway reads in portions, with or without options."""
    gateway = Gateway()
    options = {
        "prompt_name": "document",
        "truncate": False,
        "truncation_direction": "left",
        "normalize": False,
        "dimensions": 3,
    }
    run(gateway, checkpoint, options)
    run(gateway, checkpoint, {})
    falses = {"truncate": "false", "normalize": "false"}
    assert gateway.queries == [options | falses | {"dimensions": "3"}, {}]
    assert gateway.bodies == [b'"a"\n"b"\n'] * 2
    assert gateway.types == ["application/x-ndjson"] * 2


def test_a_job_is_on_record_by_its_url_and_reports_truncation(checkpoint: Checkpoint) -> None:
    """The URL has the prefix of the gateway once; the number of truncated texts is that of the job."""
    embedded = run(Gateway(), checkpoint, {})
    assert checkpoint.jobs() == ["http://gateway/prefix/jobs/q.1"]
    assert embedded.vectors.shape == (2, 3)
    assert embedded.num_truncated == 1
    checkpoint.save(0, embedded.vectors, {}, embedded.revisions, embedded.num_truncated)
    assert checkpoint.num_truncated(1) == 1
    assert checkpoint.revisions(1) == {"r"}
