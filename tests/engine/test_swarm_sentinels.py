"""The stack with three Redis and three sentinels, services of a file of the user's, on a Swarm of three nodes.

Each node has a Redis and a sentinel; node2 has a worker, too.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import Any

import pytest

from tests.deploy.dockerfile import ROOT
from tests.engine.bases import redis_image
from tests.engine.load import Service
from tests.engine.scenes import Table, undisturbed
from tests.engine.stack import Deployment
from tests.engine.swarm import NAMES, REGISTRY, Swarm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

PASSWORD = secrets.token_hex(16)
"""Of the replicas and the sentinels."""

NUMBERS = range(1, 4)
SENTINELS = ",".join(f"sentinel-{number}" for number in NUMBERS)
SYNC_S = 2.0
"""After it, a job is in the replicas and on the disk: a Redis that is killed may lose what it took a second before."""

RESTART_DELAY_S = 10
"""Longer than a failover takes, so that the old master comes back as a replica."""

MAX_S = 8.0
"""Of a request: the failover, and the time until a gateway and a worker have both connected to the new master."""


def service_on(node: str, command: list[str], **more: object) -> dict[str, Any]:
    """Returns a service of Redis' image on a node."""
    deploy = {
        "endpoint_mode": "dnsrr",
        "placement": {"constraints": [f"node.hostname == {node}"]},
        "restart_policy": {"condition": "any", "delay": f"{RESTART_DELAY_S}s"},
    }
    return {"image": f"{REGISTRY}/{redis_image()}", "networks": ["inner"], "command": command, "deploy": deploy, **more}


def edit_secrets(script: str) -> str:
    """Returns secrets.sh with the URLs of the sentinels, and with the users that docs/redis.md gives them."""
    page = (ROOT / "docs/redis.md").read_text(encoding="utf-8")
    lines = re.findall(r"`(user (?:replica|sentinel) on #<sha256> [^`]*)`", page)
    assert len(lines) == 2, lines
    users = "\n".join(lines).replace("<sha256>", hashlib.sha256(PASSWORD.encode()).hexdigest())
    acl, end, rest = script.partition("\nEND_OF_SECRET\n")
    urls = rf"redis+sentinel://\1@{SENTINELS}/mymaster/0"
    return acl + "\n" + users + end + re.sub(r"redis://(\w+:\w+)@redis:6379/0", urls, rest)


def sentinel_file() -> dict[str, Any]:
    """Returns the file of the stack with three Redis and three sentinels."""
    services: dict[str, Any] = {"redis": {"deploy": {"replicas": 0}}}
    acl = {"source": "redbatch_redis_acl", "target": "/run/secrets/users.acl"}
    for number, node in zip(NUMBERS, NAMES, strict=True):
        peers = ["--masteruser", "replica", "--masterauth", PASSWORD, "--replica-announce-ip", f"redis-{number}"]
        master = [] if number == 1 else ["--replicaof", "redis-1", "6379"]
        store = ["--dir", "/data", "--appendonly", "yes", "--save", "", "--aclfile", "/run/secrets/users.acl"]
        mounts = {"secrets": [acl], "volumes": [f"redis-{number}:/data"]}
        services[f"redis-{number}"] = service_on(node, ["redis-server", *store, *peers, *master], **mounts)
        lines = [
            "protected-mode no",
            "sentinel resolve-hostnames yes",
            "sentinel announce-hostnames yes",
            f"sentinel announce-ip sentinel-{number}",
            "sentinel monitor mymaster redis-1 6379 2",
            "sentinel down-after-milliseconds mymaster 1000",
            "sentinel failover-timeout mymaster 10000",
            "sentinel auth-user mymaster sentinel",
            f"sentinel auth-pass mymaster {PASSWORD}",
        ]
        printed = " ".join(f"'{line}'" for line in lines)
        script = f"until redis-cli -h redis-1 ping; do sleep 0.5; done; printf '%s\\n' {printed} > /tmp/sentinel.conf"
        started = f"{script} && exec redis-server /tmp/sentinel.conf --port 26379 --sentinel"
        services[f"sentinel-{number}"] = service_on(node, ["sh", "-c", started])
    return {"version": "3.9", "services": services, "volumes": {f"redis-{number}": {} for number in NUMBERS}}


def ask_sentinel(nodes: Swarm, *words: str) -> str:
    """Returns what the first sentinel says."""
    (task,) = nodes.running("sentinel-1")
    return nodes.node(task.node).docker("exec", nodes.container(task), "redis-cli", "-p", "26379", "sentinel", *words)


def master_of(nodes: Swarm) -> str:
    """Returns the service that the sentinels take for the master."""
    return ask_sentinel(nodes, "get-master-addr-by-name", "mymaster").split()[0]


def follows(nodes: Swarm, redis: str) -> bool:
    """Returns whether a Redis is a replica that has a link to the master."""
    replicas = ask_sentinel(nodes, "replicas", "mymaster")
    of_it = replicas.partition(f"name\n{redis}:6379\n")[2].partition("\nname\n")[0]
    return "master-link-status\nok\n" in of_it


@pytest.fixture(scope="module")
def service(nodes: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """The service of a stack whose URLs name the sentinels."""
    folder = tmp_path_factory.mktemp("deployment") / "checkout"
    deployment = Deployment(folder, nodes, "stack.cpu.yml", "sentinels.yml")
    deployment.push_images()
    deployment.label("gpu", "node2")
    deployment.create_edited_secrets(edit_secrets)
    deployment.write("sentinels.yml", sentinel_file())
    deployment.deploy()
    return deployment.serve()


def test_the_master_is_killed(nodes: Swarm, service: Service, table: Table) -> None:
    """A replica takes over, and the old master comes back as a replica."""
    nodes.wait_until(lambda: "OK 3 usable Sentinels" in ask_sentinel(nodes, "ckquorum", "mymaster"), "all sentinels")
    old = master_of(nodes)
    (task,) = nodes.running(old)
    with undisturbed(service, table, "three Redis with sentinels: SIGKILL of the master", max_s=MAX_S):
        time.sleep(SYNC_S)
        nodes.node(task.node).docker("kill", "--signal=KILL", nodes.container(task))
        nodes.wait_until(lambda: master_of(nodes) != old, "another Redis is the master")
        nodes.wait_until_replaced(old, [task])
        nodes.wait_until(lambda: follows(nodes, old), "the old master is a replica")
