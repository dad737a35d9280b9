"""Plays the controller of Deployments: pods, and their replacement by the rules of the manifest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.deploy.manifests import Manifest
from tests.deploy.simulated_cluster.kubelet import Pod
from tests.waiting import wait_until

START_S = 90.0


@dataclass(frozen=True, slots=True)
class End:
    """How a pod ended: its exit code, and how long after it was deleted."""

    code: int
    after_s: float


class Deployment:
    """A Deployment with its pods.

    Args:
        manifest: of the Deployment.
        make: makes a pod.

    Attributes:
        pods: those that have not been told to leave.
        made: all that there ever were.
        ended: how those ended that have left, by their names.
    """

    def __init__(self, manifest: Manifest, make: Callable[[Manifest], Pod]) -> None:
        self._manifest = manifest
        self._make = make
        self._leaving: list[asyncio.Task[None]] = []
        self.pods: list[Pod] = []
        self.made: list[Pod] = []
        self.ended: dict[str, End] = {}

    async def scale(self, replicas: int) -> None:
        """Starts so many pods and waits until all may be counted on."""
        added = [self._add() for _ in range(replicas)]
        await asyncio.gather(*(self._available(pod) for pod in added))

    async def roll_out(self) -> None:
        """Replaces all pods: one more first, or one less first, as the manifest's strategy says.

        Returns when all new ones may be counted on: where there was one more first, old ones are still leaving.
        """
        rolling = self._manifest["spec"]["strategy"]["rollingUpdate"]
        assert sorted(rolling.values()) == [0, 1]
        for old in list(self.pods):
            if rolling["maxSurge"]:
                await self._available(self._add())
                self.remove(old)
            else:
                await self.remove(old)  # whose device the next one needs
                await self._available(self._add())

    def remove(self, pod: Pod, grace_s: float | None = None) -> asyncio.Task[None]:
        """Deletes a pod; returns what ends when it has left."""
        self.pods.remove(pod)
        self._leaving.append(asyncio.create_task(self._remove(pod, grace_s)))
        return self._leaving[-1]

    async def left(self) -> None:
        """Waits until all have left that were told to."""
        await asyncio.gather(*self._leaving)

    async def kill(self) -> None:
        """Ends all pods at once."""
        await asyncio.gather(*(self.remove(pod, 0) for pod in list(self.pods)))
        await self.left()

    def restarts(self) -> int:
        """Returns how often a container was begun again."""
        return sum(pod.restarts for pod in self.made)

    async def _remove(self, pod: Pod, grace_s: float | None) -> None:
        began = time.monotonic()
        self.ended[pod.name] = End(await pod.end(grace_s), time.monotonic() - began)

    def _add(self) -> Pod:
        pod = self._make(self._manifest)
        self.pods.append(pod)
        self.made.append(pod)
        pod.start()
        return pod

    async def _available(self, pod: Pod) -> None:
        least_s = self._manifest["spec"].get("minReadySeconds", 0)

        def available() -> bool:
            pod.check()
            return pod.ready and time.monotonic() - pod.ready_at >= least_s

        await wait_until(
            available, lambda: f"{pod.name} is available\n{pod.last_words()}", timeout_s=START_S, poll_s=0.02
        )
