"""The stack without its Redis, beside three with sentinels, on a Swarm of three nodes.

Each node has a Redis and a sentinel, as services of a file of the user's; node2 has a worker, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.bases import redis_image
from tests.engine.load import Service
from tests.engine.scenes import Table, undisturbed
from tests.engine.stack import Deployment
from tests.engine.swarm import NAMES, REGISTRY, Swarm, swarm
from tests.engine.workspace import workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

NUMBERS = range(1, 4)
SENTINELS = ",".join(f"sentinel-{number}" for number in NUMBERS)
TO_SENTINELS = rf"sed -i -E 's#redis://(gateway|worker|admin):([0-9a-f]+)@redis:6379/0#redis+sentinel://\1:\2@{SENTINELS}/mymaster/0#'"
"""The edit of secrets.sh of which docs/deploy.md speaks."""


def service_on(node: str, command: list[str], **more: object) -> dict[str, Any]:
    """Returns a service of Redis' image on a node."""
    deploy = {
        "endpoint_mode": "dnsrr",
        "placement": {"constraints": [f"node.hostname == {node}"]},
        "restart_policy": {"condition": "any", "delay": "1s"},
    }
    return {"image": f"{REGISTRY}/{redis_image()}", "networks": ["inner"], "command": command, "deploy": deploy, **more}


def sentinel_file(password: str) -> dict[str, Any]:
    """Returns the file of the stack with three Redis and three sentinels, which log in as admin with this password."""
    services: dict[str, Any] = {"redis": {"deploy": {"replicas": 0}}}
    acl = {"source": "redbatch_redis_acl", "target": "/run/secrets/users.acl"}
    for number, node in zip(NUMBERS, NAMES, strict=True):
        peers = ["--masteruser", "admin", "--masterauth", password, "--replica-announce-ip", f"redis-{number}"]
        master = [] if number == 1 else ["--replicaof", "redis-1", "6379"]
        store = ["--appendonly", "yes", "--save", "", "--aclfile", "/run/secrets/users.acl"]
        services[f"redis-{number}"] = service_on(node, ["redis-server", *store, *peers, *master], secrets=[acl])
        lines = [
            "protected-mode no",
            "sentinel resolve-hostnames yes",
            "sentinel announce-hostnames yes",
            f"sentinel announce-ip sentinel-{number}",
            "sentinel monitor mymaster redis-1 6379 2",
            "sentinel down-after-milliseconds mymaster 1000",
            "sentinel failover-timeout mymaster 10000",
            "sentinel auth-user mymaster admin",
            f"sentinel auth-pass mymaster {password}",
        ]
        printed = " ".join(f"'{line}'" for line in lines)
        script = f"until redis-cli -h redis-1 ping; do sleep 0.5; done; printf '%s\\n' {printed} > /tmp/sentinel.conf"
        started = f"{script} && exec redis-server /tmp/sentinel.conf --port 26379 --sentinel"
        services[f"sentinel-{number}"] = service_on(node, ["sh", "-c", started])
    return {"version": "3.9", "services": services}


def master_of(nodes: Swarm) -> str:
    """Returns the service that the first sentinel takes for the master."""
    (task,) = nodes.running("sentinel-1")
    words = ("redis-cli", "-p", "26379", "sentinel", "get-master-addr-by-name", "mymaster")
    return nodes.node(task.node).docker("exec", nodes.container(task), *words).split()[0]


@pytest.fixture(scope="module")
def nodes(images: None) -> Iterator[Swarm]:
    """Three nodes."""
    with swarm(workspace(), {}) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def service(nodes: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """The service of a stack whose URLs name the sentinels."""
    folder = tmp_path_factory.mktemp("deployment") / "checkout"
    deployment = Deployment(folder, nodes, "stack.cpu.yml", "sentinels.yml")
    deployment.push_images()
    deployment.label("gpu", "node2")
    deployment.create_secrets(TO_SENTINELS)
    (password,) = re.findall(r"://admin:(\w+)@", (folder / "secrets.sh").read_text(encoding="utf-8"))
    deployment.write("sentinels.yml", sentinel_file(password))
    deployment.deploy()
    return deployment.serve()


def test_the_master_is_killed(nodes: Swarm, service: Service, table: Table) -> None:
    """The old master comes back a second later, or a replica has taken over by then.

    A sentinel stops while it looks up the name of the dead container, which this network's DNS answers slowly: so here
    it is mostly the old master.
    """
    old = master_of(nodes)
    (task,) = nodes.running(old)
    with undisturbed(service, table, "three Redis with sentinels: SIGKILL of the master"):
        nodes.node(task.node).docker("kill", "--signal=KILL", nodes.container(task))
        nodes.wait_until_replaced(old, [task])
