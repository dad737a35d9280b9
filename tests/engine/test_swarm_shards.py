"""The stack with two Redis, each with a shard of the queue, on a Swarm of three nodes.

node1 is the manager and has the first Redis; node2 has a worker, node3 the second Redis and nothing else.
"""

from __future__ import annotations

import time

import pytest

from tests.engine.load import RESTART_TIMEOUT_S, Service
from tests.engine.network import link_down
from tests.engine.scenes import Table, undisturbed
from tests.engine.stack import Deployment
from tests.engine.swarm import Swarm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

LINK_DOWN_S = 12.0
MAX_S = 4.0
"""Of a request: those that wait for a Redis that is away take longer."""


@pytest.fixture(scope="module")
def deployment(nodes: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The stack with stack.shards.yml."""
    folder = tmp_path_factory.mktemp("deployment") / "checkout"
    deployment = Deployment(folder, nodes, "stack.cpu.yml", "stack.shards.yml")
    deployment.begin()
    return deployment


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Service:
    """The deployed service, with keys on both Redis."""
    return deployment.serve()


def test_one_of_two_redis_is_killed(nodes: Swarm, service: Service, table: Table) -> None:
    """Requests go to the other one until the next Redis has started in its place."""
    (task,) = nodes.running("redis2")
    with undisturbed(service, table, "SIGKILL of one of two Redis", max_s=MAX_S):
        nodes.node("node3").docker("kill", "--signal=KILL", nodes.container(task))
        nodes.wait_until_replaced("redis2", [task])


def test_the_link_of_one_of_two_redis_is_down(nodes: Swarm, service: Service, table: Table) -> None:
    """Requests go to the other one while no packet reaches a Redis, and none tells that it is gone."""
    with undisturbed(service, table, f"link of one of two Redis down for {LINK_DOWN_S:g} s", max_s=MAX_S):
        with link_down("node3"):
            time.sleep(LINK_DOWN_S)
        nodes.wait_until_runs("redis2", 1)


def test_passwords_of_both_are_changed(nodes: Swarm, deployment: Deployment, service: Service, table: Table) -> None:
    """New passwords by the commands of docs/redis.md, with the hosts and the files of the first deploy."""
    before = {name: nodes.running(name) for name in ("redis", "redis2", "gateway", "worker")}
    with undisturbed(service, table, "new passwords of two Redis", RESTART_TIMEOUT_S):
        deployment.change_passwords()
        for name, tasks in before.items():
            nodes.wait_until_replaced(name, tasks)
