"""The manifests' pods as containers on an engine, with a simulated kubelet and controller, behind nginx, under load."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from redbatch.redis_users import k8s
from redbatch.redis_users.passwords import RedisAddress, new_credentials
from tests.deploy.manifests import K8S, Manifest, named, objects, of_kind, pod_of, render
from tests.deploy.simulated_cluster.container import PodIdentity
from tests.deploy.simulated_cluster.controller import Deployment
from tests.deploy.simulated_cluster.kubelet import Pod
from tests.deploy.simulated_cluster.nginx import Balancer
from tests.deploy.simulated_cluster.service import Service as SimulatedService
from tests.engine.bases import redis_image
from tests.engine.commands import run
from tests.engine.engine import Engine
from tests.engine.load import RESTART_TIMEOUT_S, Service
from tests.engine.network import address_of
from tests.engine.pods import ContainerProgram, ContainerRuntime
from tests.engine.scenes import Table, undisturbed
from tests.engine.swarm import NAMES, remove_all
from tests.nginx import nginx

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(nginx() is None, reason="nginx is not installed"),
]

NETWORK, SUBNET = "pods", "10.213.67"
FIRST = 10
"""The address of the first pod; Redis and the engine have lower ones."""

ENGINE_START_S = 60.0
WORKER_MEMORY = "1Gi"
"""Of a worker of MiniLM in these tests: what fills it must fit into the machine, too."""

EVENTS = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
"""One of them has the number of kills: the second version of control groups, and the first."""

FILL = f"head -c 750M /dev/zero > /dev/shm/fill; rm /dev/shm/fill; cat {EVENTS} 2> /dev/null || true"
"""Files in memory count as the container's, so the kernel kills its largest process, the engine. Then there is room."""


@dataclass
class Cluster:
    """Pods of the manifests, and clients of their Service."""

    gateways: Deployment
    workers: Deployment
    service: Service
    table: Table

    @asynccontextmanager
    async def undisturbed(self, name: str, timeout_s: float = RESTART_TIMEOUT_S) -> AsyncIterator[None]:
        """Runs clients and a job during the block, beside the kubelet's loop. Raises AssertionError: one failed."""
        stack = ExitStack()
        await asyncio.to_thread(stack.enter_context, undisturbed(self.service, self.table, name, timeout_s))
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


@pytest.fixture
def network(engine: Engine) -> Iterator[str]:
    """A network for pods, which the tests reach by the addresses of the pods."""
    engine.docker("network", "prune", "--force")  # that of a run that was ended
    engine.docker("network", "create", f"--subnet={SUBNET}.0/24", NETWORK)
    run(["ip", "netns", "exec", NAMES[0], "iptables", "-I", "DOCKER-USER", "-j", "ACCEPT"])
    run(["ip", "route", "replace", f"{SUBNET}.0/24", "via", address_of(0)])
    yield NETWORK
    subprocess.run(["ip", "route", "delete", f"{SUBNET}.0/24"], check=False, capture_output=True)
    remove_all(engine)
    engine.docker("network", "rm", NETWORK)


@pytest.fixture
def manifests() -> list[Manifest]:
    """The overlay for CPUs, as kustomize renders it, with its Secrets, two pods of each kind and less memory."""
    secrets = objects(k8s.manifests("redbatch", new_credentials(None), RedisAddress("redis", 6379, tls=False)))
    found = [*objects(render(K8S / "overlays/dev-cpu")), *of_kind(secrets, "Secret")]
    (container,) = pod_of(named(found, "Deployment", "worker"))["containers"]
    container["resources"]["limits"]["memory"] = WORKER_MEMORY
    return found


@pytest.fixture
def redis(engine: Engine, network: str, manifests: list[Manifest], tmp_path: Path) -> None:
    """Redis with the users of the Secret, under the name of its Service."""
    users = tmp_path / "users.acl"
    users.write_text(named(manifests, "Secret", "redis-users")["stringData"]["users.acl"], encoding="utf-8")
    users.chmod(0o444)
    engine.docker(
        "run", "--detach", "--name=redis", f"--network={network}", f"--ip={SUBNET}.2",
        f"--volume={users}:/users.acl:ro", redis_image(), "redis-server", "--aclfile", "/users.acl",
    )  # fmt: skip


@pytest_asyncio.fixture
async def cluster(
    engine: Engine, network: str, redis: None, manifests: list[Manifest], tmp_path: Path, table: Table
) -> AsyncIterator[Cluster]:
    """Two gateways and two workers behind nginx."""
    numbers = iter(range(FIRST, 255))

    def make(workload: Manifest) -> Pod:
        number = next(numbers)
        identity = PodIdentity.of(workload, number, f"{SUBNET}.{number}")
        runtime = ContainerRuntime(engine, network, manifests, workload, identity, tmp_path / identity.name)
        return Pod(workload, identity, runtime.command, runtime)

    gateways, workers = (Deployment(named(manifests, "Deployment", name), make) for name in ("gateway", "worker"))
    selected = SimulatedService(named(manifests, "Service", "gateway"), lambda: [*gateways.created, *workers.created])
    try:
        await asyncio.gather(gateways.scale(2), workers.scale(2))
        (tmp_path / "nginx").mkdir()
        async with Balancer(tmp_path / "nginx", selected.endpoints) as balancer:
            # nginx closes client connections when it reloads its file: each call uses a new one.
            service = Service(balancer.urls, {"connection": "close"})
            await asyncio.to_thread(service.learn_vectors)
            yield Cluster(gateways, workers, service, table)
    finally:
        await asyncio.gather(gateways.kill(), workers.kill())


async def fill_memory(worker: Pod) -> None:
    """Has the kernel kill the engine of a worker, because its container is out of memory; waits until it is ready."""
    assert isinstance(worker.program, ContainerProgram)
    program = worker.program
    counts = await asyncio.to_thread(program.execute, "sh", "-c", FILL)
    assert re.search(r"^oom_kill [1-9]", counts, re.MULTILINE), counts
    until = time.monotonic() + ENGINE_START_S
    while (await asyncio.to_thread(lambda: program.output)).count("engine ready") < 2:
        assert time.monotonic() < until, program.log_tail()
        await asyncio.sleep(1)


async def test_pods_are_replaced(cluster: Cluster) -> None:
    """By rollouts, an eviction, the loss of a node, and the kernel. Each pod that may end itself does, with 0."""
    gateways, workers = cluster.gateways, cluster.workers
    async with cluster.undisturbed("pods: gateways rolled out"):
        await gateways.roll_out()
    async with cluster.undisturbed("pods: workers rolled out"):
        await workers.roll_out()
    async with cluster.undisturbed("pods: a worker evicted"):
        await workers.remove(workers.pods[0])
        await workers.scale(1)
    async with cluster.undisturbed("pods: an engine out of memory, killed by the kernel"):
        await fill_memory(workers.pods[0])
    async with cluster.undisturbed("pods: the node of a worker lost"):
        lost = workers.pods[0]
        assert isinstance(lost.program, ContainerProgram)
        await asyncio.to_thread(lost.program.cut_off, NETWORK)
        await workers.remove(lost, grace_s=0)
        await workers.scale(1)
    await asyncio.gather(gateways.wait_until_ended(), workers.wait_until_ended())
    codes = {name: end.code for each in (gateways, workers) for name, end in each.exits.items() if name != lost.name}
    assert codes == dict.fromkeys(codes, 0)
    assert [each.restarts() for each in (gateways, workers)] == [0, 0]
