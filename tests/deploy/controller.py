"""Plays the controller of Deployments: pods, and their replacement by the rules of the manifest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.deploy.kubelet import Pod
from tests.deploy.manifests import Manifest
from tests.waiting import wait_until

START_S = 90.0


class Deployment:
    """A Deployment with its pods.

    Args:
        manifest: of the Deployment.
        make: makes a pod.

    Attributes:
        pods: those that have not been told to leave.
        ended: how those ended that have left: exit codes by pod.
    """

    def __init__(self, manifest: Manifest, make: Callable[[Manifest], Pod]) -> None:
        self._manifest = manifest
        self._make = make
        self.pods: list[Pod] = []
        self._made: list[Pod] = []
        self.ended: dict[str, int] = {}

    async def scale(self, replicas: int) -> None:
        """Starts so many pods and waits until all may be counted on."""
        added = [self._add() for _ in range(replicas)]
        await asyncio.gather(*(self._available(pod) for pod in added))

    async def roll_out(self) -> None:
        """Replaces all pods: one more first, or one less first, as the manifest's strategy says."""
        rolling = self._manifest["spec"]["strategy"]["rollingUpdate"]
        assert sorted(rolling.values()) == [0, 1]
        leaving = []
        for old in list(self.pods):
            if rolling["maxSurge"]:
                await self._available(self._add())
                leaving.append(asyncio.create_task(self.remove(old)))
            else:
                await self.remove(old)  # whose device the next one needs
                await self._available(self._add())
        await asyncio.gather(*leaving)

    async def remove(self, pod: Pod, grace_s: float | None = None) -> None:
        """Ends a pod."""
        self.pods.remove(pod)
        self.ended[pod.name] = await pod.end(grace_s)

    def endpoints(self) -> list[str]:
        """Returns addresses and ports of the pods that may be sent requests."""
        return sorted(f"{pod.address}:{pod.port}" for pod in self.pods if pod.ready)

    def restarts(self) -> int:
        """Returns how often a container was begun again."""
        return sum(pod.restarts for pod in self._made)

    def _add(self) -> Pod:
        pod = self._make(self._manifest)
        self.pods.append(pod)
        self._made.append(pod)
        pod.start()
        return pod

    async def _available(self, pod: Pod) -> None:
        least_s = self._manifest["spec"].get("minReadySeconds", 0)
        await wait_until(
            lambda: pod.ready and time.monotonic() - pod.ready_at >= least_s,
            lambda: f"{pod.name} is available\n{pod.program.last_words() if pod.program else 'it was never started'}",
            timeout_s=START_S,
            poll_s=0.02,
        )
