"""The component for monitoring in an overlay, as kubectl renders it; and the commands of docs/operations.md."""

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

from redbatch.local_redis import bundled
from shared import delivery
from shared.queue import Queue
from shared.settings import QueueSettings
from tests.deploy.custom_resources import has_schema, violations
from tests.deploy.dockerfile import ROOT
from tests.integration.queue.actors import Gateway, Worker
from tests.integration.queue.actors import request as asked
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
    """Returns the patch that the component's file tells of."""
    text = (COMPONENT / "kustomization.yaml").read_text(encoding="utf-8")
    (found,) = re.findall(r"^#   patches:\n(?:#   .*\n)+", text, re.MULTILINE)
    return textwrap.dedent(re.sub(r"^#", "", found, flags=re.MULTILINE))


@pytest.fixture
def rendered(tmp_path: Path) -> list[dict[str, Any]]:
    """An overlay in another namespace, for an operator that looks for another label."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl to render it")
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")
    component = os.path.relpath(COMPONENT, tmp_path.resolve())
    text = f"namespace: elsewhere\nresources: [pod.yaml]\ncomponents: [{component}]\n{documented_patch()}"
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    ran = subprocess.run(["kubectl", "kustomize", tmp_path], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def test_an_overlay_gets_all_of_it(rendered: list[dict[str, Any]]) -> None:
    """In its own namespace, with the label that it wants; and Grafana's sidecar finds the dashboard whole."""
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
    """A Redis with the queue of the page: one entry that a worker holds, one that waits, and a dead letter."""
    if request.param:
        needs_redis("7.0")
    with Server(users=request.param) as server:
        queue = Queue(QueueSettings(redis_url=server.url), "minilm", "test")
        gateway, worker = Gateway(queue.link("submit"), queue.keys), Worker(queue.link("work"), queue.keys, "worker-1")
        await delivery.join(worker.link, queue.keys)
        await gateway.add(asked(), asked(), asked())
        assert await worker.bury(await worker.claim(entries=1)) == [True]
        assert len(await worker.claim(entries=1)) == 1
        yield server
        await queue.close()


def login(server: Server, command: list[str]) -> list[str]:
    """Returns with which name to ask, where there are users: replies are the admin's to see, all else is the ops'."""
    if urlsplit(server.url).username is None:
        return []
    user = "admin" if any(":reply:" in word for word in command) and command[0] != "--scan" else "ops"
    return ["--no-auth-warning", "--user", user, "--pass", password_of(user)]


@pytest.mark.redis
async def test_the_commands_of_the_page_work(server: Server) -> None:
    """Each line of docs/operations.md that asks Redis gets an answer, as who it says, and takes nothing away."""
    client = bundled("redis-cli")
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
