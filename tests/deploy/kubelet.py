"""Plays a kubelet: runs the container of a pod as its manifest says, probes it, and ends it as Kubernetes does.

What is a pod's own there is played by what a process can have: its address by one of the loopback's, its mounts by
folders. All else is the manifest's and the image's: the command, the variables, the probes and their times.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests import plain_http
from tests.deploy.dockerfile import chain, environment
from tests.deploy.manifests import Manifest, config_of, pod_of
from tests.processes import Processes, Program

STAGES = {"gateway": "gateway", "worker": "worker-cuda"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what images listen on


@dataclass(frozen=True)
class Probe:
    """A probe by HTTP, with Kubernetes' defaults where the manifest says nothing."""

    url: str
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, container: Manifest, name: str, address: str) -> Self:
        """Returns a container's probe of that name."""
        given = container[name]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        return cls(
            f"http://{address}:{ports[given['httpGet']['port']]}{given['httpGet']['path']}",
            given.get("periodSeconds", 10),
            given.get("timeoutSeconds", 1),
            given.get("failureThreshold", 3),
        )

    async def passes(self, client: httpx.AsyncClient) -> bool:
        """Asks once."""
        try:
            answer = await client.get(self.url, timeout=self.timeout_s)
        except httpx.HTTPError:
            return False
        return answer.is_success


class Pod:
    """A pod with one container.

    Args:
        workload: what it is one of.
        number: of the pod.
        env: its container's variables.
        processes: where its process is started.

    Attributes:
        ready: whether it may be sent requests.
        ready_at: since when (s, monotonic).
        restarts: how often its container was begun again, since it was not alive.
    """

    def __init__(self, workload: Manifest, number: int, env: Mapping[str, str], processes: Processes) -> None:
        self.name = f"{workload['metadata']['name']}-{number}"
        self.address = address_of(number)
        self.ready = False
        self.ready_at = 0.0
        self.restarts = 0
        self.program: Program | None = None
        self._pod = pod_of(workload)
        self._container = self._pod["containers"][0]
        self._env = env
        self._processes = processes
        self._running: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The first of its container's ports."""
        return int(self._container["ports"][0]["containerPort"])

    def start(self) -> None:
        """Starts it; it is ready some time later."""
        self._running = asyncio.create_task(self._run())

    async def end(self, grace_s: float | None = None) -> int:
        """Ends it: first `preStop`, then SIGTERM, SIGKILL at the end of the grace. Returns the exit code.

        Args:
            grace_s: another grace than the manifest's.
        """
        self.ready = False
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        return await self._end_container(self._pod["terminationGracePeriodSeconds"] if grace_s is None else grace_s)

    async def _end_container(self, grace_s: float) -> int:
        assert self.program is not None
        until = time.monotonic() + grace_s
        await asyncio.sleep(self._container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))
        try:
            return await self.program.stop(max(0.0, until - time.monotonic()))
        except AssertionError:
            self.program.kill()
            return -signal.SIGKILL

    async def _run(self) -> None:
        async with plain_http.client() as client:
            while True:
                words = " ".join(command(self._container["name"])).replace(EVERYWHERE, self.address)
                self.program = await self._processes.start(self.name, words, self._env)
                await self._watch(client)
                self.ready = False
                self.restarts += 1
                await self._end_container(self._pod["terminationGracePeriodSeconds"])

    async def _watch(self, client: httpx.AsyncClient) -> None:
        """Probes until the container has to be begun again."""
        began = Probe.of(self._container, "startupProbe", self.address)
        for _ in range(began.failures):
            if await began.passes(client):
                break
            await asyncio.sleep(began.period_s)
        else:
            return
        readiness = asyncio.create_task(self._watch_readiness(client))
        try:
            await self._until_dead(client)
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)

    async def _watch_readiness(self, client: httpx.AsyncClient) -> None:
        probe, failed = Probe.of(self._container, "readinessProbe", self.address), 0
        while True:
            failed = 0 if await probe.passes(client) else failed + 1
            if failed == 0 and not self.ready:
                self.ready, self.ready_at = True, time.monotonic()
            elif failed >= probe.failures:
                self.ready = False
            await asyncio.sleep(probe.period_s)

    async def _until_dead(self, client: httpx.AsyncClient) -> None:
        probe, failed = Probe.of(self._container, "livenessProbe", self.address), 0
        while failed < probe.failures and self.program is not None and self.program.running:
            await asyncio.sleep(probe.period_s)
            failed = 0 if await probe.passes(client) else failed + 1


def command(image: str) -> list[str]:
    """Returns what an image runs, by its Dockerfile, but for the init in front, which has one child here already."""
    stages = chain(STAGES[image])
    (entrypoint,) = [json.loads(each) for stage in stages for each in stage.values("ENTRYPOINT")]
    (words,) = [json.loads(each) for stage in stages for each in stage.values("CMD")]
    assert entrypoint == ["tini", "--", "redbatch"]
    return ["redbatch", *words]


def variables(
    manifests: list[Manifest], workload: Manifest, number: int, mounts: Mapping[str, Path], image: Mapping[str, str]
) -> dict[str, str]:
    """Returns the variables of a pod's container.

    Args:
        manifests: with the ConfigMaps.
        workload: whose pod it is.
        number: of the pod.
        mounts: folders by the paths at which the container has them.
        image: variables that another image would have than that of the Dockerfile.
    """
    container: Any = pod_of(workload)["containers"][0]
    found = {
        name: value for name, value in environment(STAGES[container["name"]]).items() if name.startswith("REDBATCH_")
    }
    found |= image
    found |= config_of(manifests, container)
    for each in container["env"]:
        if each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == "metadata.name":
            found[each["name"]] = f"{workload['metadata']['name']}-{number}"
    for mount in container["volumeMounts"]:
        for path, folder in mounts.items():
            if mount["mountPath"] == path:
                found = {name: value.replace(f"{path}/", f"{folder}/") for name, value in found.items()}
    return {name: value.replace(EVERYWHERE, address_of(number)) for name, value in found.items()}


def address_of(number: int) -> str:
    """Returns the address of a pod: one of the loopback's, so that all pods may listen on the same ports."""
    return f"127.77.{number // 250}.{number % 250 + 1}"
