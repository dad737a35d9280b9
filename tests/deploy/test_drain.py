"""Rollouts as Kubernetes does them, with the manifests that are committed, under load, behind a load balancer."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.history import Call, judge
from tests.chaos.load import load
from tests.chaos.scene import whole
from tests.deploy.controller import Deployment
from tests.deploy.kubelet import Pod, variables
from tests.deploy.manifests import RENDERED, Manifest, named, objects, pod_of
from tests.deploy.nginx import Balancer, nginx
from tests.processes import Processes
from tests.servers import Server
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.longest,
    pytest.mark.skipif(nginx() is None, reason="there is no nginx to balance the load"),
]

CLIENTS = 12
MODEL = {"REDBATCH_MODEL": "simulated:base_ms=20,item_ms=2", "REDBATCH_QUEUE": "minilm"}
"""An image of another model, which takes no time to load and whose vectors tell whose they are."""

NUMBERS = itertools.count(os.getpid() % 200 * 200)  # other tests' pods have addresses of their own


@dataclass
class Cluster:
    """What the manifests make, played."""

    gateways: Deployment
    workers: Deployment
    calls: list[Call] = field(default_factory=list)

    async def served(self, number: int) -> None:
        """Waits until so many more calls have been answered."""
        wanted = len(self.calls) + number
        await wait_until(lambda: len(self.calls) >= wanted, "more calls are answered", timeout_s=30)


@pytest.fixture
def manifests() -> list[Manifest]:
    """Those that are committed."""
    return objects(RENDERED.read_text(encoding="utf-8"))


@pytest.fixture
def hasty(manifests: list[Manifest]) -> None:
    """Has the gateways leave without a word: no preStop, no drain_delay_s."""
    (container,) = pod_of(named(manifests, "Deployment", "gateway"))["containers"]
    del container["lifecycle"]
    container["env"].append({"name": "REDBATCH_DRAIN_DELAY_S", "value": "0"})


@pytest_asyncio.fixture
async def cluster(manifests: list[Manifest], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Two gateways behind nginx and two workers, each a pod of its Deployment, under load until the end of the test."""
    folder = tmp_path_factory.mktemp("cluster")
    with Server() as server:
        secrets = {user: folder / f"{user}-redis" for user in ("gateway", "worker", "admin")}
        for user, secret in secrets.items():
            secret.mkdir()
            (secret / "url").write_text(as_user(server.url, user), encoding="utf-8")
        async with Processes(folder) as processes:

            def make(workload: Manifest) -> Pod:
                number, name = next(NUMBERS), workload["metadata"]["name"]
                mounts, image = {"/run/secrets/redis": secrets[name]}, MODEL if name == "worker" else {}
                return Pod(workload, number, variables(manifests, workload, number, mounts, image), processes)

            gateways, workers = (
                Deployment(named(manifests, "Deployment", name), make) for name in ("gateway", "worker")
            )
            await gateways.scale(2)  # a gateway is ready before there is a worker
            await workers.scale(2)
            nginx_folder = tmp_path_factory.mktemp("nginx")
            async with Balancer(nginx_folder, gateways.endpoints) as balancer:
                # A client's own connections to nginx end when nginx reads its file anew: each call has one of its own.
                headers = {"authorization": f"Bearer {create_key(secrets['admin'] / 'url')}", "connection": "close"}
                found = Cluster(gateways, workers)
                async with load(balancer.urls, CLIENTS, headers=headers) as found.calls:
                    await found.served(CLIENTS)
                    yield found
            for deployment in (gateways, workers):
                await asyncio.gather(*(deployment.remove(pod) for pod in list(deployment.pods)))


def create_key(url: Path) -> str:
    """Returns a client's key, made as docs/deploy.md says."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "redbatch", "keys", "create"],
        env=os.environ | {"REDBATCH_REDIS_URL_FILE": str(url)},
        check=True,
        capture_output=True,
        text=True,
    )
    (key,) = re.findall(r"^\S+\.\S{20,}$", ran.stdout, re.MULTILINE)
    return str(key)


@pytest.mark.timeout(240)
async def test_rollouts_fail_nobody(cluster: Cluster) -> None:
    """New gateways, then new workers, fewer gateways, and a worker that hangs: each request has its answer.

    Each pod leaves by itself within its grace, but for the one that hangs with what it has claimed: it is killed at
    the end of its grace (a short one here).
    """
    await cluster.gateways.roll_out()
    await cluster.served(50)
    await asyncio.gather(cluster.workers.roll_out(), cluster.gateways.scale(2))
    await cluster.served(50)
    await asyncio.gather(*(cluster.gateways.remove(pod) for pod in cluster.gateways.pods[:2]))
    await cluster.served(50)
    left = [*cluster.gateways.ended.values(), *cluster.workers.ended.values()]
    hangs = cluster.workers.pods[0]
    assert hangs.program is not None
    hangs.program.signal(signal.SIGSTOP)
    await cluster.workers.remove(hangs, grace_s=2)
    await cluster.served(50)
    verdict = judge(cluster.calls)
    sys.stdout.write(f"{verdict}\n")
    assert whole(verdict), verdict
    assert left == [0] * 6
    assert cluster.workers.ended[hangs.name] == -signal.SIGKILL
    assert (cluster.gateways.restarts(), cluster.workers.restarts()) == (0, 0)


@pytest.mark.long
@pytest.mark.usefixtures("hasty")
@pytest.mark.timeout(240)
async def test_gateways_that_leave_without_a_word_fail_some(cluster: Cluster) -> None:
    """So the test above would notice."""
    await cluster.gateways.roll_out()
    verdict = judge(cluster.calls)
    sys.stdout.write(f"{verdict}\n")
    assert verdict.lost > 0
