"""compose.yaml on an engine, with the images of the Dockerfile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import ROOT
from tests.engine.commands import CommandError, run
from tests.engine.documented import documented
from tests.engine.engine import Engine
from tests.engine.images import GATEWAY, WORKER
from tests.engine.load import text_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

PORT = 9000
INPUTS = 1_000
READY_S, JOB_S = 120.0, 240.0


class Compose:
    """The project of compose.yaml on another port, with images that are built already.

    Args:
        engine: that runs it.
        folder: for a file.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._override = folder / "images.yaml"
        services = {"gateway": {"image": GATEWAY}, "worker": {"image": WORKER}}
        self._override.write_text(yaml.safe_dump({"version": "3.9", "services": services}), encoding="utf-8")

    def run(self, *words: str) -> str:
        """Runs docker-compose; returns what it wrote to stdout. Raises CommandError."""
        files = ["-f", str(ROOT / "compose.yaml"), "-f", str(self._override)]
        env = self._engine.environment | {"REDBATCH_COMPOSE_PORT": str(PORT)}
        return run(["docker-compose", "-p", "redbatch", *files, *words], env=env, timeout_s=180)

    def shell(self, script: str) -> str:
        """Runs a script where the port is published, on the node's loopback; returns what it wrote."""
        return run(["nsenter", f"--net=/run/netns/{self._engine.name}", "bash", "-euc", script], timeout_s=60)

    def request(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - as JSON
        """Returns the answer to a request. Raises CommandError: its status is an error, or there is no answer."""
        data = ["--data", f"'{json.dumps(body)}'"] if body is not None else []
        words = ["curl", "--silent", "--show-error", "--fail", "-H", "'Content-Type: application/json'", *data]
        return json.loads(self.shell(" ".join([*words, f"'http://127.0.0.1:{PORT}{path}'"])))

    def embed_as_documented(self) -> list[float]:
        """Returns the vector that the command of docs/deploy.md prints."""
        script = documented("deploy.md", """json' -d '{"text": "Hello, world"}' http://127.0.0.1:8080/embed""")
        vector: list[float] = json.loads(self.shell(script.replace("8080", str(PORT))))["embedding"]
        return vector

    def wait_until_ready(self) -> None:
        """Returns once a text is embedded. Raises AssertionError: not in time."""
        until = time.monotonic() + READY_S
        while True:
            try:
                self.request("/embed", {"text": "Hello, world"})
            except CommandError:
                assert time.monotonic() < until, self.run("logs", "--tail=20")
                time.sleep(0.5)
            else:
                return


@pytest.fixture
def compose(engine: Engine, tmp_path: Path) -> Iterator[Compose]:
    """The project, which is removed after the test."""
    compose = Compose(engine, tmp_path)
    yield compose
    compose.run("down", "--volumes")
    assert engine.docker("ps", "--all", "--quiet") == ""
    assert engine.docker("volume", "ls", "--quiet") == ""


def test_compose_serves_and_keeps_jobs(compose: Compose) -> None:
    """The page's command embeds a text; a job survives a restart of all services, and its result another start."""
    compose.run("up", "--detach", "--no-build")
    compose.wait_until_ready()
    vector = compose.embed_as_documented()
    assert len(vector) == 384
    texts = [text_of(number) for number in range(INPUTS)]
    job = compose.request("/jobs", {"texts": texts})
    compose.run("restart")
    compose.wait_until_ready()
    until = time.monotonic() + JOB_S
    while job["status"] in ("queued", "running"):
        assert time.monotonic() < until, job
        job = compose.request(f"{job['status_url']}?wait=5")
    assert (job["status"], job["done"], job["failed"]) == ("done", INPUTS, 0)
    compose.run("down")
    compose.run("up", "--detach", "--no-build")
    compose.wait_until_ready()
    assert len(compose.request(job["result_url"])["embeddings"]) == INPUTS
    assert compose.embed_as_documented() == pytest.approx(vector, abs=1e-5)
