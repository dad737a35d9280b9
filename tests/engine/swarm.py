"""Three engines that form a Swarm, in network namespaces, and the registry between them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.engine.engine import Engine
from tests.engine.network import HOST, address_of, network
from tests.engine.registry import registry

NAMES = ("node1", "node2", "node3")
REGISTRY = f"{HOST}:5000"
SETTLE_S = 600.0
POLL_S = 0.25


class Task(NamedTuple):
    """A task of a service: its id, node, wanted and actual state, and its error, which may be empty."""

    task_id: str
    node: str
    wanted: str
    state: str
    error: str

    @property
    def runs(self) -> bool:
        """Whether it runs and is to run; with a health check, it is healthy."""
        return self.wanted == "Running" and self.state.startswith("Running")


@dataclass
class Swarm:
    """The nodes; the first is the only manager."""

    nodes: Sequence[Engine]

    @property
    def manager(self) -> Engine:
        """The engine that takes commands for the Swarm."""
        return self.nodes[0]

    def node(self, name: str) -> Engine:
        """Returns the engine of a node."""
        return next(node for node in self.nodes if node.name == name)

    def docker(self, *words: str | Path, stdin: str = "", timeout_s: float = 60.0) -> str:
        """Runs docker at the manager. Raises CommandError."""
        return self.manager.docker(*words, stdin=stdin, timeout_s=timeout_s)

    def tasks(self, service: str) -> list[Task]:
        """Returns the tasks of a service of the stack, the newest first."""
        form = "{{.ID}}|{{.Node}}|{{.DesiredState}}|{{.CurrentState}}|{{.Error}}"
        lines = self.docker("service", "ps", "--no-trunc", "--format", form, f"redbatch_{service}").splitlines()
        return [Task(*line.split("|", 4)) for line in lines]

    def running(self, service: str) -> list[Task]:
        """Returns the tasks of a service that run."""
        return [task for task in self.tasks(service) if task.runs]

    def container(self, task: Task) -> str:
        """Returns the id of a task's container."""
        form = "{{.Status.ContainerStatus.ContainerID}}"
        return self.docker("inspect", "--type", "task", "--format", form, task.task_id)

    def node_state(self, name: str) -> str:
        """Returns whether a node is there: `ready` or `down`."""
        return self.docker("node", "inspect", "--format", "{{.Status.State}}", name)

    def update_state(self, service: str) -> str:
        """Returns how far an update of a service is: `completed`, `rollback_completed`, ...; "" without one."""
        form = "{{if .UpdateStatus}}{{.UpdateStatus.State}}{{end}}"
        return self.docker("service", "inspect", "--format", form, f"redbatch_{service}")

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = SETTLE_S) -> None:
        """Returns once a condition holds. Raises AssertionError: it does not in time; the message has all tasks."""
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, f"not within {timeout_s:g} s: {what}\n{self.picture()}"
            time.sleep(POLL_S)

    def wait_until_runs(self, service: str, number: int, timeout_s: float = SETTLE_S) -> None:
        """Returns once this number of tasks of a service run, and no others are to run."""

        def settled() -> bool:
            tasks = [task for task in self.tasks(service) if task.wanted == "Running"]
            return len(tasks) == number == sum(task.runs for task in tasks)

        self.wait_until(settled, f"{number} of {service} run", timeout_s)

    def wait_until_replaced(self, service: str, old: Sequence[Task]) -> None:
        """Returns once as many other tasks of a service run as are given, and none of these."""

        def replaced() -> bool:
            running = {task.task_id for task in self.running(service)}
            return len(running) == len(old) and not running & {task.task_id for task in old}

        self.wait_until(replaced, f"{service} runs again")

    def picture(self) -> str:
        """Returns the nodes and tasks, for an error."""
        return self.docker("node", "ls") + "\n" + self.docker("stack", "ps", "--no-trunc", "redbatch")


@contextmanager
def swarm(folder: Path, options: dict[str, Sequence[str]]) -> Iterator[Swarm]:
    """Starts the engines of the nodes, each with its own options, makes them a Swarm, and ends all after the block."""
    with ExitStack() as stack:
        stack.enter_context(network(NAMES))
        stack.enter_context(registry(folder / "registry", REGISTRY))
        nodes = [stack.enter_context(_node(folder / name, name, options.get(name, ()))) for name in NAMES]
        manager = nodes[0]
        manager.docker("swarm", "init", "--advertise-addr", address_of(0))
        token = manager.docker("swarm", "join-token", "--quiet", "worker")
        for index, node in enumerate(nodes[1:], start=1):
            node.docker("swarm", "join", "--advertise-addr", address_of(index), "--token", token, address_of(0))
        yield Swarm(nodes)


@contextmanager
def _node(folder: Path, name: str, options: Sequence[str]) -> Iterator[Engine]:
    """An engine without what an earlier run left, except images."""
    shutil.rmtree(folder / "data/swarm", ignore_errors=True)
    shutil.rmtree(folder / "data/network", ignore_errors=True)
    with Engine(folder, name, [f"--insecure-registry={REGISTRY}", *options]) as node:
        remove_all(node)
        try:
            yield node
        finally:
            if node.answers():
                node.docker("swarm", "leave", "--force")
                remove_all(node)


def remove_all(engine: Engine) -> None:
    """Removes all containers and volumes of an engine."""
    containers = engine.docker("ps", "--all", "--quiet").split()
    if containers:
        engine.docker("rm", "--force", "--volumes", *containers)
    volumes = engine.docker("volume", "ls", "--quiet").split()
    if volumes:
        engine.docker("volume", "rm", "--force", *volumes)
