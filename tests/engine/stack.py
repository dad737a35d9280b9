"""The stack as this machine can run it, deployed by the commands of docs/deploy.md.

Only what the kernel lacks is taken out, by name: see `adapted`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfile import ROOT
from tests.deploy.swarm_stack import SHARDS, STACK
from tests.engine.balancer import start_balancer
from tests.engine.bases import redis_image
from tests.engine.documented import documented, run_script
from tests.engine.load import Service
from tests.engine.machine import has_ipsec, has_virtual_servers
from tests.engine.swarm import REGISTRY, Swarm

WORKER_VERSION = "0.1.0-cpu"
FILES = "-c swarm/stack.yml"


def adapted(stack: dict[str, Any]) -> dict[str, Any]:
    """Returns the stack without what the kernel lacks.

    Without ESP the network is not encrypted. Without IPVS no port is published, and the name of a service is resolved
    to its tasks instead of a virtual address. Redis' image comes from the registry of the nodes instead of the public
    one.
    """
    stack["services"]["redis"]["image"] = f"{REGISTRY}/{redis_image()}"
    if not has_ipsec():
        del stack["networks"]["inner"]["driver_opts"]["encrypted"]
    if not has_virtual_servers():
        del stack["services"]["gateway"]["ports"]
        for name in ("gateway", "worker"):
            stack["services"][name]["deploy"]["endpoint_mode"] = "dnsrr"
    return stack


class Deployment:
    """A folder with the files of the stack, at the manager, in which the documented commands run.

    Args:
        folder: which must not exist.
        swarm: that it deploys to.
        files: names of further files of swarm/, after stack.yml.
    """

    def __init__(self, folder: Path, swarm: Swarm, *files: str) -> None:
        self.folder, self.swarm, self.files = folder, swarm, list(files)
        shutil.copytree(ROOT / "swarm", folder / "swarm")
        self.write("stack.yml", adapted(yaml.safe_load(STACK.read_text(encoding="utf-8"))))
        shards = yaml.safe_load(SHARDS.read_text(encoding="utf-8"))
        shards["services"]["redis2"]["image"] = f"{REGISTRY}/{redis_image()}"
        self.write(SHARDS.name, shards)

    def begin(self) -> None:
        """Deploys the stack by the commands of the page: Redis on node1, a worker on node2, no gateway on node3."""
        elsewhere = {"placement": {"constraints": ["node.hostname != node3"]}}
        self.write("gateways.yml", {"version": "3.9", "services": {"gateway": {"deploy": elsewhere}}})
        self.files.append("gateways.yml")
        self.push_images()
        self.label("redis", "node1")
        self.label("gpu", "node2")
        if self.has_shards:
            self.swarm.docker("node", "update", "--label-add", "redis2=true", "node3")
        self.create_secrets()
        self.deploy()

    @property
    def has_shards(self) -> bool:
        """Whether it has two Redis."""
        return SHARDS.name in self.files

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Writes a file of the stack."""
        (self.folder / "swarm" / name).write_text(yaml.safe_dump(content), encoding="utf-8")

    def run(self, script: str, **replaced: str) -> str:
        """Runs a script of the documents with the names of this place; returns what it wrote. Raises CommandError."""
        names = " ".join([FILES, *(f"-c swarm/{name}" for name in self.files)])
        replaced = {"registry.example.com": REGISTRY, **replaced} if "registry.example.com" in script else replaced
        if FILES in script:
            script = script.replace(FILES, names)
        env = self.swarm.manager.environment
        env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "PYTHONPATH": str(ROOT)}
        return run_script(script, self.folder, env, replaced)

    def push_images(self) -> None:
        """Writes redbatch.env and pushes the images, as the page does."""
        script = documented("deploy.md", "cat > redbatch.env", "done")
        self.run(script, **{"REDBATCH_WORKER_VERSION=0.1.0 ": f"REDBATCH_WORKER_VERSION={WORKER_VERSION} "})
        for command in (("tag", redis_image(), f"{REGISTRY}/{redis_image()}"), ("push", f"{REGISTRY}/{redis_image()}")):
            self.swarm.manager.docker(*command)

    def label(self, name: str, node: str) -> None:
        """Sets the label of the page on a node."""
        script = documented("deploy.md", f"docker node update --label-add {name}=true", "NODE")
        self.run(script, NODE=node)

    def create_secrets(self) -> None:
        """Creates the secrets."""
        script = documented("deploy.md", "swarm secrets > secrets.sh", "sh secrets.sh")
        hosts = {"swarm secrets": "swarm secrets --host redis --host redis2"} if self.has_shards else {}
        self.run(f". ./redbatch.env\n{script}", **hosts)

    def create_edited_secrets(self, edit: Callable[[str], str]) -> None:
        """Creates the secrets by a secrets.sh that is edited before it runs."""
        script = documented("deploy.md", "swarm secrets > secrets.sh", "sh secrets.sh")
        write, _, create = script.rpartition(" && ")
        self.run(f". ./redbatch.env\n{write}")
        path = self.folder / "secrets.sh"
        path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.run(create)

    def deploy(self) -> None:
        """Deploys the stack with the values of redbatch.env."""
        line = documented("deploy.md", "REDBATCH_VERSION=[^ ]*", "stack.yml redbatch").splitlines()[-1]
        self.run(line)

    def create_key(self) -> str:
        """Creates an API key, once Redis is there; returns it."""
        script = documented("deploy.md", "export REDBATCH_REDIS_URL=$(grep", "done")
        several = {"REDBATCH_REDIS_URL": "REDBATCH_REDIS_SHARDS"} if self.has_shards else {}
        scopes = {"keys create": "keys create --scope embed --scope jobs"}
        output = self.run(f". ./redbatch.env\n{script}", **several, **scopes)
        (key,) = re.findall(r"^\S+\.\S{20,}$", output, re.MULTILINE)
        return str(key)

    def serve(self) -> Service:
        """Returns the service with one worker, once it answers, with a key of docs/deploy.md."""
        service = Service([start_balancer(self.swarm)], {"authorization": f"Bearer {self.create_key()}"})
        self.swarm.wait_until_runs("gateway", 2)
        self.swarm.wait_until_runs("worker", 1)
        self.swarm.wait_until(service.is_ready, "a text is embedded")
        service.learn_vectors()
        return service

    @contextmanager
    def changed(self, file: str = "", **values: str) -> Iterator[None]:
        """Deploys the stack with another file, and with other values in redbatch.env, for the time of the block."""
        path, files = self.folder / "redbatch.env", list(self.files)
        text = path.read_text(encoding="utf-8")
        try:
            self.files += [file] if file else []
            for name, value in values.items():
                self._set(name, value)
            self.deploy()
            yield
        finally:
            self.files = files
            path.write_text(text, encoding="utf-8")
            self.deploy()

    def _set(self, name: str, value: str) -> None:
        """Sets a variable in redbatch.env, as the page does for an upgrade."""
        line = documented("deploy.md", "s/^export REDBATCH_VERSION=[^ ]*/", "redbatch.env")
        self.run(line, **{"REDBATCH_VERSION": name, "0.2.0": value})

    def change_passwords(self) -> None:
        """Gives all users of Redis new passwords beside the old ones, and deploys the stack with them."""
        hosts = {"swarm secrets": "swarm secrets --host redis --host redis2"} if self.has_shards else {}
        self.run(documented("redis.md", "swarm secrets --suffix _2"), **hosts)
