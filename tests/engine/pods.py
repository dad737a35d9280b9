"""Containers of pods, as a container runtime makes them from a pod's spec. The kubelet is a simulated one.

Security contexts, mounts and volumes with a field that has no effect here raise AssertionError. Requests, limits other
than memory, and sizes of volumes on disk have none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.deploy.manifests import Manifest, pod_of
from tests.deploy.simulated_cluster.container import (
    Command,
    PodIdentity,
    container_of,
    require_known_keys,
    variables,
    write_secret,
)
from tests.engine.commands import CommandError
from tests.engine.engine import Engine
from tests.engine.machine import CLIENT
from tests.waiting import wait_until

LOG_LINES = 30


class ContainerProgram:
    """A container that has been started. `docker wait` ends when it does, with its exit code."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        command = [CLIENT, "wait", name]
        self._waiting = subprocess.Popen(command, env=engine.environment, stdout=subprocess.PIPE, text=True)
        self._exit_code: int | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._waiting.poll() is None

    @property
    def output(self) -> str:
        """Its log."""
        return self._engine.docker("logs", self._name)

    def log_tail(self) -> str:
        """Returns the end of its log."""
        return self._engine.docker("logs", f"--tail={LOG_LINES}", self._name)

    def execute(self, *words: str) -> str:
        """Runs a command in it, as its user; returns what that wrote. Raises CommandError."""
        return self._engine.docker("exec", self._name, *words)

    def signal(self, number: int) -> None:
        """Sends a signal to its first process."""
        self._engine.docker("kill", f"--signal={number}", self._name)

    def kill(self) -> None:
        """Kills all of its processes, if it has not ended."""
        with suppress(CommandError):
            self._engine.docker("kill", self._name)
        self._wait()

    def cut_off(self, network: str) -> None:
        """Takes it off its network: no packet reaches it or leaves it, as with a pod on a node that is lost."""
        self._engine.docker("network", "disconnect", "--force", network, self._name)

    async def stop(self, timeout_s: float) -> int:
        """Sends SIGTERM unless it has ended; returns its exit code. Raises AssertionError: it does not end in time."""
        with suppress(CommandError):  # it has ended
            await asyncio.to_thread(self._engine.docker, "kill", "--signal=TERM", self._name)
        await wait_until(lambda: not self.running, f"{self._name} has ended", timeout_s=timeout_s)
        return self._wait()

    def _wait(self) -> int:
        if self._exit_code is None:
            self._exit_code = int(self._waiting.communicate()[0])
        return self._exit_code


class ContainerRuntime:
    """Starts the container of one pod.

    Args:
        engine: runs it.
        network: of the engine; the pod has its address there.
        manifests: include ConfigMaps and Secrets.
        workload: the owner of the pod.
        identity: the pod's.
        folder: an empty folder for its volumes.
    """

    def __init__(
        self, engine: Engine, network: str, manifests: list[Manifest], workload: Manifest, identity: PodIdentity,
        folder: Path,
    ) -> None:  # fmt: skip
        self._engine = engine
        container = container_of(workload)
        assert not {"command", "args"} & container.keys(), "the image's own command is expected"
        self.command = Command([], variables(manifests, container, identity))
        security = pod_of(workload)["securityContext"]
        self._options = [
            f"--network={network}",
            f"--ip={identity.address}",
            f"--hostname={identity.name}",
            *_user(security),
            *_privileges(container["securityContext"]),
            *_memory(container["resources"]),
            *_volumes(manifests, workload, folder, security["fsGroup"]),
        ]
        self._image = str(container["image"])

    async def start(self, name: str, words: str, env: Mapping[str, str]) -> ContainerProgram:
        """Starts it, in place of one of this name that has ended."""
        assert not words
        return await asyncio.to_thread(self._start, name, env)

    def _start(self, name: str, env: Mapping[str, str]) -> ContainerProgram:
        if self._engine.docker("ps", "--all", "--quiet", f"--filter=name=^{name}$"):
            self._engine.docker("rm", "--force", name)
        given = [f"--env={key}={value}" for key, value in env.items()]
        self._engine.docker("run", "--detach", f"--name={name}", *self._options, *given, self._image)
        return ContainerProgram(self._engine, name)


def _user(security: Manifest) -> list[str]:
    """Returns the options for the security context of a pod: RuntimeDefault is the engine's default profile."""
    known = {"fsGroup", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"}
    require_known_keys(security, known, "securityContext of the pod")
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not security["runAsNonRoot"] or security["runAsUser"]
    return [f"--user={security['runAsUser']}:{security['runAsGroup']}", f"--group-add={security['fsGroup']}"]


def _privileges(security: Manifest) -> list[str]:
    """Returns the options for the security context of a container."""
    known = {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}
    require_known_keys(security, known, "securityContext of the container")
    require_known_keys(security["capabilities"], {"drop"}, "capabilities")
    options = [f"--cap-drop={each}" for each in security["capabilities"]["drop"]]
    options += [] if security["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]
    return options + (["--read-only"] if security["readOnlyRootFilesystem"] else [])


def _memory(resources: Manifest) -> list[str]:
    """Returns the options for the limit of memory; swap is not used."""
    size = _size(resources["limits"]["memory"])
    return [f"--memory={size}", f"--memory-swap={size}"]


def _size(quantity: str) -> str:
    """Returns a size as docker writes it: 16Gi is 16g."""
    assert quantity.endswith(("Mi", "Gi")), quantity
    return quantity.removesuffix("i").lower()


def _volumes(manifests: list[Manifest], workload: Manifest, folder: Path, group: int) -> list[str]:
    """Returns the options for the volumes of a container: Secrets, and empty folders on disk and in memory."""
    volumes, options = {each["name"]: each for each in pod_of(workload)["volumes"]}, []
    for mount in container_of(workload)["volumeMounts"]:
        require_known_keys(mount, {"name", "mountPath", "readOnly"}, f"mount {mount['name']}")
        volume, path, at = volumes[mount["name"]], mount["mountPath"], folder / mount["name"]
        require_known_keys(volume, {"name", "secret", "emptyDir"}, f"volume {mount['name']}")
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            options.append(f"--tmpfs={path}:mode=1777,size={_size(volume['emptyDir']['sizeLimit'])}")
            continue
        at.mkdir(parents=True)
        if "secret" in volume:
            write_secret(manifests, volume["secret"], at)
            for file in at.iterdir():
                file.chmod(volume["secret"]["defaultMode"])
                os.chown(file, 0, group)
        else:
            at.chmod(0o2777)
        options.append(f"--volume={at}:{path}{':ro' * mount.get('readOnly', False)}")
    return options
