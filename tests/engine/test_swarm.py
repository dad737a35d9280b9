"""The stack on a Swarm of three nodes: what docs/deploy.md says, under load.

node1 is the manager and has Redis; node2 and node3 have workers. No gateway runs on node3.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.engine.balancer import start_balancer
from tests.engine.load import Service
from tests.engine.scenes import Table, undisturbed
from tests.engine.stack import Deployment
from tests.engine.swarm import Swarm, swarm
from tests.engine.workspace import workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

LINK_DOWN_S = 12.0
GPU = "NVIDIA-GPU=GPU-0"


@pytest.fixture(scope="module")
def nodes(images: None) -> Iterator[Swarm]:
    """Three nodes, of which node2 counts a GPU."""
    with swarm(workspace(), {"node2": [f"--node-generic-resource={GPU}"]}) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def deployment(nodes: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The stack, deployed by the commands of docs/deploy.md."""
    deployment = Deployment(tmp_path_factory.mktemp("deployment") / "checkout", nodes, "stack.cpu.yml", "gateways.yml")
    elsewhere = {"placement": {"constraints": ["node.hostname != node3"]}}
    deployment.write("gateways.yml", {"version": "3.9", "services": {"gateway": {"deploy": elsewhere}}})
    deployment.push_images()
    deployment.label("redis", "node1")
    deployment.label("gpu", "node2")
    deployment.create_secrets()
    deployment.deploy()
    return deployment


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Service:
    """The deployed service, with a key of docs/deploy.md."""
    service = Service([start_balancer(deployment.swarm)], {"authorization": f"Bearer {deployment.create_key()}"})
    deployment.swarm.wait_until_runs("gateway", 2)
    deployment.swarm.wait_until_runs("worker", 1)
    deployment.swarm.wait_until(service.is_ready, "a text is embedded")
    service.learn_vectors()
    return service


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    """The table of all scenes, printed at the end."""
    table = Table()
    yield table
    sys.stdout.write(f"\n{table}\n")


def nodes_of(nodes: Swarm, service: str) -> set[str]:
    """Returns the nodes on which tasks of a service run."""
    return {task.node for task in nodes.running(service)}


def kill_worker(nodes: Swarm, node: str) -> None:
    """Ends the worker of a node by SIGKILL, and waits until all workers run again."""
    before = nodes.running("worker")
    (task,) = [task for task in before if task.node == node]
    nodes.node(node).docker("kill", "--signal=KILL", nodes.container(task))
    others = [each for each in before if each != task]
    nodes.wait_until(
        lambda: (
            len({each.task_id for each in nodes.running("worker")} - {each.task_id for each in others}) == 1
            and task.task_id not in {each.task_id for each in nodes.running("worker")}
        ),
        "another worker runs",
    )


def roll(nodes: Swarm, service: str) -> None:
    """Replaces all tasks of a service, as an upgrade does."""
    before = nodes.running(service)
    nodes.docker("service", "update", "--force", "--quiet", "--detach", f"redbatch_{service}")
    nodes.wait_until_replaced(service, before)
    nodes.wait_until(lambda: nodes.update_state(service) == "completed", f"the update of {service} is over")


def set_gpu(nodes: Swarm, *, on_node3: bool) -> None:
    """Sets the label of node3, and waits until as many workers run as nodes have it."""
    nodes.docker("node", "update", "--label-add", f"gpu={str(on_node3).lower()}", "node3")
    nodes.wait_until_runs("worker", 1 + on_node3)


@pytest.fixture
def one_worker(nodes: Swarm, service: Service) -> Service:
    """The service with a worker on node2 alone."""
    set_gpu(nodes, on_node3=False)
    return service


@pytest.fixture
def two_workers(nodes: Swarm, service: Service) -> Service:
    """The service with a second worker, on node3."""
    set_gpu(nodes, on_node3=True)
    return service


def test_workers_run_where_the_label_is(nodes: Swarm, one_worker: Service, table: Table) -> None:
    """A worker runs on each node with gpu=true, and leaves a node that loses the label; Redis is where its label is."""
    assert (nodes_of(nodes, "worker"), nodes_of(nodes, "redis")) == ({"node2"}, {"node1"})
    with undisturbed(one_worker, table, "a second node gets the label, and loses it"):
        set_gpu(nodes, on_node3=True)
        assert nodes_of(nodes, "worker") == {"node2", "node3"}
        set_gpu(nodes, on_node3=False)
        assert nodes_of(nodes, "worker") == {"node2"}


def test_the_only_worker_is_killed(nodes: Swarm, one_worker: Service, table: Table) -> None:
    """The only worker dies by SIGKILL: the next one starts a second later, and answers within the timeout."""
    with undisturbed(one_worker, table, "SIGKILL of the only worker"):
        kill_worker(nodes, "node2")


def test_gateways_are_replaced(nodes: Swarm, one_worker: Service, table: Table) -> None:
    """Each new gateway starts before an old one stops."""
    with undisturbed(one_worker, table, "gateways replaced"):
        roll(nodes, "gateway")


def test_gateways_are_scaled(nodes: Swarm, one_worker: Service, table: Table) -> None:
    """Two more gateways serve, and leave."""
    with undisturbed(one_worker, table, "gateways 2 to 4 to 2"):
        for number in (4, 2):
            nodes.docker("service", "scale", "--detach", f"redbatch_gateway={number}")
            nodes.wait_until_runs("gateway", number)


def test_redis_is_replaced(nodes: Swarm, one_worker: Service, table: Table) -> None:
    """Requests wait while Redis stops and the next one loads its file."""
    with undisturbed(one_worker, table, "Redis replaced"):
        roll(nodes, "redis")


def test_workers_are_replaced(nodes: Swarm, two_workers: Service, table: Table) -> None:
    """Workers stop one after another, each when the one before serves."""
    with undisturbed(two_workers, table, "two workers replaced"):
        roll(nodes, "worker")
