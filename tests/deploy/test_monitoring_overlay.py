"""The component `monitoring` in a rendered overlay, and the commands of docs/operations.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import redis
import yaml

from redbatch.up.local_redis import find_bundled
from shared import consumer
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.deploy.custom_resources import has_schema, violations
from tests.deploy.dockerfile import ROOT
from tests.integration.queue.actors import Gateway, Worker
from tests.integration.queue.actors import request as new_request
from tests.servers import Server
from tests.users import password_of

COMPONENT = ROOT / "k8s" / "components" / "monitoring"
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: gateway
spec:
  containers:
    - {name: gateway, image: redbatch-gateway, ports: [{name: admin, containerPort: 9090}]}
"""


def documented_patch() -> str:
    """Returns the patch in the comment of the component's file."""
    text = (COMPONENT / "kustomization.yaml").read_text(encoding="utf-8")
    (found,) = re.findall(r"^#   patches:\n(?:#   .*\n)+", text, re.MULTILINE)
    return textwrap.dedent(re.sub(r"^#", "", found, flags=re.MULTILINE))


@pytest.fixture
def rendered(tmp_path: Path) -> list[dict[str, Any]]:
    """Renders an overlay in another namespace, for an operator that selects another label."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")
    component = os.path.relpath(COMPONENT, tmp_path.resolve())
    text = f"namespace: elsewhere\nresources: [pod.yaml]\ncomponents: [{component}]\n{documented_patch()}"
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    ran = subprocess.run(["kubectl", "kustomize", tmp_path], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def test_an_overlay_contains_the_whole_component(rendered: list[dict[str, Any]]) -> None:
    """All objects are in the overlay's namespace with its label, and Grafana's sidecar gets the whole dashboard."""
    ours = {(each["kind"], each["metadata"]["name"]): each for each in rendered if each["kind"] != "Pod"}
    assert set(ours) == {
        *(("PodMonitor", "gateway"), ("PodMonitor", "worker"), ("PrometheusRule", "redbatch")),
        *(("NetworkPolicy", "monitoring"), ("ConfigMap", "redbatch-dashboard")),
    }
    assert {each["metadata"]["namespace"] for each in rendered} == {"elsewhere"}
    for (kind, _), resource in ours.items():
        assert ("release" in resource["metadata"].get("labels", {})) == has_schema(kind)
        if has_schema(kind):
            assert violations(resource) == []
            assert resource["metadata"]["labels"] == {"release": "my-release"}
    dashboard = ours["ConfigMap", "redbatch-dashboard"]
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(dashboard["data"]["redbatch.json"]) == json.loads((COMPONENT / "dashboard.json").read_text())


@pytest_asyncio.fixture(params=[False, True], ids=["without users", "with users"])
async def server(request: pytest.FixtureRequest, needs_redis: Callable[[str], None]) -> AsyncIterator[Server]:
    """Yields a Redis with the queue of the page: one claimed entry, one that waits, and a dead letter."""
    if request.param:
        needs_redis("7.0")
    with Server(users=request.param) as server:
        queue = QueueConnections(QueueSettings(redis_url=server.url), "minilm", "test")
        gateway, worker = (
            Gateway(queue.connection("submit"), queue.keys),
            Worker(queue.connection("work"), queue.keys, "worker-1"),
        )
        await consumer.join(worker.connection, queue.keys)
        await gateway.add(new_request(), new_request(), new_request())
        assert await worker.give_up(await worker.claim(entries=1)) == [True]
        assert len(await worker.claim(entries=1)) == 1
        yield server
        await queue.close()


def login(server: Server, command: list[str]) -> list[str]:
    """Returns the options for a user, if Redis has users: `admin` for replies, `ops` for all other keys."""
    if urlsplit(server.url).username is None:
        return []
    user = "admin" if any(":reply:" in word for word in command) and command[0] != "--scan" else "ops"
    return ["--no-auth-warning", "--user", user, "--pass", password_of(user)]


@pytest.mark.redis
async def test_the_commands_of_the_page_work(server: Server) -> None:
    """Each redis-cli command of docs/operations.md succeeds as its user, and deletes nothing."""
    client = find_bundled("redis-cli")
    assert client is not None
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in re.findall(r"^\$ (redis-cli .*)$", page, re.MULTILINE)]
    assert len(commands) > 15
    for command in commands:
        line = [str(client), "-e", "--no-raw", "-p", str(server.port), *login(server, command), *command]
        ran = subprocess.run(line, check=False, capture_output=True, text=True)
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    assert server.refused() == []
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        assert [raw.xlen(key) for key in ("rb:{minilm}:q:interactive", "rb:{minilm}:dead")] == [2, 1]
