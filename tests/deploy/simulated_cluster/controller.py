"""A simulated controller of Deployments: it creates pods, and replaces them by the rules of the manifest."""

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
class PodExit:
    """The end of a pod: its exit code, and the time in s since it was deleted."""

    code: int
    after_s: float


class Deployment:
    """A Deployment with its pods.

    Args:
        manifest: of the Deployment.
        make: creates a pod.

    Attributes:
        pods: pods that have not been deleted.
        created: all pods that were ever created.
        exits: the ends of deleted pods, by their names.
    """

    def __init__(self, manifest: Manifest, make: Callable[[Manifest], Pod]) -> None:
        self._manifest = manifest
        self._make = make
        self._deletions: list[asyncio.Task[None]] = []
        self.pods: list[Pod] = []
        self.created: list[Pod] = []
        self.exits: dict[str, PodExit] = {}

    async def scale(self, replicas: int) -> None:
        """Starts this number of pods and waits until all are available."""
        added = [self._add() for _ in range(replicas)]
        await asyncio.gather(*(self._available(pod) for pod in added))

    async def roll_out(self) -> None:
        """Replaces all pods, one surge pod or one unavailable pod at a time, by the manifest's strategy.

        Returns when all new pods are available; with a surge pod, old ones may still be terminating.
        """
        rolling = self._manifest["spec"]["strategy"]["rollingUpdate"]
        assert sorted(rolling.values()) == [0, 1]
        for old in list(self.pods):
            if rolling["maxSurge"]:
                await self._available(self._add())
                self.remove(old)
            else:
                await self.remove(old)  # the next pod needs its device
                await self._available(self._add())

    def remove(self, pod: Pod, grace_s: float | None = None) -> asyncio.Task[None]:
        """Deletes a pod; returns a task that ends when the pod has ended."""
        self.pods.remove(pod)
        self._deletions.append(asyncio.create_task(self._remove(pod, grace_s)))
        return self._deletions[-1]

    async def wait_until_ended(self) -> None:
        """Waits until all deleted pods have ended."""
        await asyncio.gather(*self._deletions)

    async def kill(self) -> None:
        """Kills all pods at once."""
        await asyncio.gather(*(self.remove(pod, 0) for pod in list(self.pods)))
        await self.wait_until_ended()

    def restarts(self) -> int:
        """Returns the number of restarts of all containers."""
        return sum(pod.restarts for pod in self.created)

    async def _remove(self, pod: Pod, grace_s: float | None) -> None:
        began = time.monotonic()
        self.exits[pod.name] = PodExit(await pod.delete(grace_s), time.monotonic() - began)

    def _add(self) -> Pod:
        pod = self._make(self._manifest)
        self.pods.append(pod)
        self.created.append(pod)
        pod.start()
        return pod

    async def _available(self, pod: Pod) -> None:
        least_s = self._manifest["spec"].get("minReadySeconds", 0)

        def available() -> bool:
            pod.check()
            return pod.ready and time.monotonic() - pod.ready_at >= least_s

        await wait_until(
            available, lambda: f"{pod.name} is available\n{pod.log_tail()}", timeout_s=START_S, poll_s=0.02
        )
