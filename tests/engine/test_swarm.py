"""The stack on a Swarm of three nodes: what docs/deploy.md says, under load.

node1 is the manager and has Redis; node2 and node3 have workers. No gateway runs on node3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.engine.images import GATEWAY
from tests.engine.load import RESTART_TIMEOUT_S, Service
from tests.engine.network import link_down
from tests.engine.scenes import Table, undisturbed
from tests.engine.stack import Deployment
from tests.engine.swarm import REGISTRY, Swarm, swarm
from tests.engine.workspace import workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

LINK_DOWN_S = 12.0
GPU = "NVIDIA-GPU=GPU-0"
MAX_START_FIRST_S = 5.0
"""Of a request while the old worker serves: less than the start of a worker takes."""


@pytest.fixture(scope="module")
def nodes(images: None) -> Iterator[Swarm]:
    """Three nodes, of which node2 counts a GPU."""
    with swarm(workspace(), {"node2": [f"--node-generic-resource={GPU}"]}) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def deployment(nodes: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The stack, deployed by the commands of docs/deploy.md."""
    deployment = Deployment(tmp_path_factory.mktemp("deployment") / "checkout", nodes, "stack.cpu.yml")
    deployment.begin()
    return deployment


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Service:
    """The deployed service."""
    return deployment.serve()


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
    with undisturbed(one_worker, table, "SIGKILL of the only worker", RESTART_TIMEOUT_S):
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


def test_a_node_is_drained(nodes: Swarm, two_workers: Service, table: Table) -> None:
    """The worker of a drained node ends its work and leaves; it comes back with the node."""
    with undisturbed(two_workers, table, "one of two nodes with workers drained"):
        nodes.docker("node", "update", "--availability", "drain", "node3")
        nodes.wait_until_runs("worker", 1)
        assert nodes_of(nodes, "worker") == {"node2"}
        nodes.docker("node", "update", "--availability", "active", "node3")
        nodes.wait_until_runs("worker", 2)


def test_the_link_of_a_node_is_down(nodes: Swarm, two_workers: Service, table: Table) -> None:
    """What a worker behind a dead link holds is done by the other one."""
    with undisturbed(two_workers, table, f"link of a worker's node down for {LINK_DOWN_S:g} s"):
        with link_down("node3"):
            time.sleep(LINK_DOWN_S)
        nodes.wait_until_runs("worker", 2)


def test_the_engine_of_a_node_is_killed(nodes: Swarm, two_workers: Service, table: Table) -> None:
    """The containers of a dead engine go on until it is back; it then starts new ones."""
    before = nodes.running("worker")
    with undisturbed(two_workers, table, "SIGKILL of the engine of a worker's node"):
        nodes.node("node3").kill()
        nodes.wait_until(lambda: nodes.node_state("node3") == "down", "node3 is down")
        nodes.node("node3").start()
        nodes.wait_until(lambda: nodes.node_state("node3") == "ready", "node3 is back")
        nodes.wait_until_replaced("worker", [task for task in before if task.node == "node3"])
        nodes.wait_until_runs("worker", 2)


def test_gateways_that_die_are_rolled_back(
    nodes: Swarm, deployment: Deployment, one_worker: Service, table: Table
) -> None:
    """An upgrade to gateways that die at their start ends with the old ones, which serve all the time."""
    dying = f"{REGISTRY}/redbatch-gateway:0.2.0"
    nodes.docker("build", "--tag", dying, "-", stdin=f'FROM {GATEWAY}\nENTRYPOINT ["false"]\n')
    nodes.docker("push", "--quiet", dying)
    with (
        undisturbed(one_worker, table, "upgrade to gateways that die, and its rollback"),
        deployment.changed(REDBATCH_VERSION="0.2.0"),
    ):
        nodes.wait_until(lambda: nodes.update_state("gateway") == "rollback_completed", "gateways are rolled back")
    nodes.wait_until_runs("gateway", 2)


def test_the_only_worker_is_replaced_by_one_that_starts_first(
    nodes: Swarm, deployment: Deployment, one_worker: Service, table: Table
) -> None:
    """With start-first the old worker serves until the new one has loaded its model, or does not exist."""
    with deployment.changed(REDBATCH_WORKER_ORDER="start-first"):
        nodes.wait_until_runs("worker", 1)
        with undisturbed(one_worker, table, "the only worker replaced, start-first", max_s=MAX_START_FIRST_S):
            roll(nodes, "worker")
        with (
            undisturbed(one_worker, table, "the same with an image that does not exist", max_s=MAX_START_FIRST_S),
            deployment.changed(REDBATCH_WORKER_VERSION="0.0.0-missing"),
        ):
            nodes.wait_until(lambda: nodes.update_state("worker") == "rollback_completed", "the worker is rolled back")
        nodes.wait_until_runs("worker", 1)


def test_passwords_are_changed(nodes: Swarm, deployment: Deployment, one_worker: Service, table: Table) -> None:
    """New passwords by the commands of docs/redis.md: Redis, gateways and workers are replaced."""
    before = {name: nodes.running(name) for name in ("redis", "gateway", "worker")}
    with undisturbed(one_worker, table, "new passwords", RESTART_TIMEOUT_S):
        deployment.change_passwords()
        for name, tasks in before.items():
            nodes.wait_until_replaced(name, tasks)


def test_workers_run_where_gpus_are_counted(
    nodes: Swarm, deployment: Deployment, one_worker: Service, table: Table
) -> None:
    """With stack.gpu-reserve.yml, a worker runs where a node counts a GPU, and waits on a node that counts none."""
    before = nodes.running("worker")
    with deployment.changed("stack.gpu-reserve.yml"):
        with undisturbed(one_worker, table, "GPUs reserved, and a node without one", RESTART_TIMEOUT_S):
            nodes.wait_until_replaced("worker", before)
            nodes.docker("node", "update", "--label-add", "gpu=true", "node3")
            nodes.wait_until(
                lambda: any("insufficient resources" in task.error for task in nodes.tasks("worker")), "a worker waits"
            )
            assert nodes_of(nodes, "worker") == {"node2"}
            nodes.docker("node", "update", "--label-add", "gpu=false", "node3")
        before = nodes.running("worker")
    nodes.wait_until_replaced("worker", before)
