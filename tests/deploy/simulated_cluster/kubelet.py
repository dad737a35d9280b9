"""A simulated kubelet: it runs the container of a pod as its manifest says, probes it, and ends it like Kubernetes.

A loopback address represents the address of a pod, and folders its mounts. Everything else comes from the manifest and
the image: the command, the variables, the probes and their times.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import socket
import time
from collections.abc import Mapping
from typing import Protocol, Self

import httpx
import psutil

from tests import plain_http
from tests.deploy.manifests import Manifest, pod_of
from tests.deploy.simulated_cluster.container import Command, PodIdentity, container_of, require_known_keys
from tests.deploy.simulated_cluster.probe import Probe
from tests.waiting import wait_until

MIN_GRACE_S = 2.0
"""Minimum time that a kubelet gives a container after SIGTERM, even if `preStop` has used up the grace period."""

BACKOFF_S = 10.0
BLOCKS, LAST, LOCK_PORT = 250, 254, 7707


class Container(Protocol):
    """A container that has been started: here a process, or one of a container runtime."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""

    def log_tail(self) -> str:
        """Returns the end of its log."""

    def signal(self, number: int) -> None:
        """Sends a signal to its first process."""

    def kill(self) -> None:
        """Kills it."""

    async def stop(self, timeout_s: float) -> int:
        """Sends SIGTERM and returns its exit code. Raises AssertionError: it does not end in time."""


class Runtime(Protocol):
    """What starts the container of a pod."""

    async def start(self, name: str, words: str, env: Mapping[str, str]) -> Container:
        """Starts it, by the words of its command."""


class Pod:
    """A pod with one container.

    Args:
        workload: the owner of the pod.
        identity: the fields of the pod.
        run: the command of its container.
        runtime: starts its container.

    Attributes:
        terminating: whether it has been deleted; from then on it is in no Service.
        ready: whether it may receive requests.
        ready_at: the time since when it is ready (s, monotonic).
        restarts: number of restarts of its container after it had ended or was not alive.
    """

    def __init__(self, workload: Manifest, identity: PodIdentity, run: Command, runtime: Runtime) -> None:
        self.identity = identity
        self.name = identity.name
        self.env = run.env
        self.container = container_of(workload)
        self.grace_s = float(pod_of(workload).get("terminationGracePeriodSeconds", 30))
        self.terminating = self.ready = False
        self.ready_at = 0.0
        self.restarts = 0
        self.program: Container | None = None
        self._began = 0.0
        self._words = " ".join(run.words)
        self._probes = {
            name: Probe.of(self.container, f"{name}Probe", identity.address)
            for name in ("startup", "readiness", "liveness")
        }
        self._runtime = runtime
        self._running: asyncio.Task[None] | None = None

    @property
    def pre_stop_s(self) -> float:
        """Sleep in s of its container's `preStop`."""
        given = self.container.get("lifecycle", {})
        require_known_keys(given, {"preStop"}, f"{self.name}: lifecycle")
        require_known_keys(given.get("preStop", {}), {"sleep"}, f"{self.name}: preStop")
        return float(given.get("preStop", {}).get("sleep", {}).get("seconds", 0))

    def start(self) -> None:
        """Starts it; it is ready some time later."""
        self._running = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raises the error of its simulation, if any, and AssertionError if its container was restarted."""
        if self._running is not None and self._running.done():
            self._running.result()
        assert self.restarts == 0, f"{self.name} was restarted\n{self.log_tail()}"

    def log_tail(self) -> str:
        """Returns the end of its log."""
        return self.program.log_tail() if self.program else "it was never started"

    async def delete(self, grace_s: float | None = None) -> int:
        """Deletes it: `preStop`, then SIGTERM, and SIGKILL at the end of the grace period. Returns the exit code.

        Args:
            grace_s: a grace period instead of the manifest's.
        """
        self.terminating, self.ready = True, False
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        return await self._end_container(self.grace_s if grace_s is None else grace_s)

    async def _end_container(self, grace_s: float) -> int:
        """Ends the container unless it has ended. The grace period includes `preStop`."""
        if self.program is None:
            return 0
        until = time.monotonic() + grace_s
        if self.program.running and grace_s <= 0:
            self.program.kill()
            return -signal.SIGKILL
        if self.program.running:
            await asyncio.sleep(min(self.pre_stop_s, grace_s))
        try:
            return await self.program.stop(max(MIN_GRACE_S, until - time.monotonic()))
        except AssertionError:
            self.program.kill()
            return -signal.SIGKILL

    async def _run(self) -> None:
        async with plain_http.client() as client:
            while True:
                self._began = time.monotonic()
                self.program = await self._runtime.start(self.name, self._words, self.env)
                await self._watch(client)
                self.ready = False
                self.restarts += 1
                await self._end_container(self.grace_s)
                await asyncio.sleep(BACKOFF_S * (self.restarts > 1))

    async def _watch(self, client: httpx.AsyncClient) -> None:
        """Returns when the container must be restarted, because it has ended or is not alive."""
        assert self.program is not None
        waits = [self._wait_until_ended(self.program), self._wait_until_unhealthy(client)]
        tasks = [asyncio.ensure_future(each) for each in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_until_ended(self, program: Container) -> None:
        await wait_until(lambda: not program.running, "the process has ended", timeout_s=math.inf, poll_s=0.05)

    async def _wait_until_unhealthy(self, client: httpx.AsyncClient) -> None:
        """Returns when it is not alive. Readiness and liveness are probed only after it has started."""
        if not await anext(self._probes["startup"].results(client, self._began)):
            return
        readiness = asyncio.create_task(self._watch_readiness(client))
        try:
            async for alive in self._probes["liveness"].results(client, self._began):
                if not alive:
                    return
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)

    async def _watch_readiness(self, client: httpx.AsyncClient) -> None:
        async for ready in self._probes["readiness"].results(client, self._began):
            if ready and not self.ready:
                self.ready_at = time.monotonic()
            self.ready = ready


class Addresses:
    """Loopback addresses that no other simulation on this machine uses, so that all pods may use the same ports."""

    def __init__(self) -> None:
        self._held = socket.socket()
        self._block = next(each for each in random.sample(range(BLOCKS), BLOCKS) if self._hold(each))
        self._given = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._held.close()

    def take(self) -> tuple[int, str]:
        """Returns a number and its address. Raises AssertionError: there are no more."""
        self._given += 1
        assert self._given < LAST, "there are no more addresses"
        return self._given, f"127.77.{self._block}.{self._given}"

    def _hold(self, block: int) -> bool:
        """Reserves a block by binding to its last address; returns whether it was free."""
        with contextlib.suppress(OSError):
            self._held.bind((f"127.77.{block}.{LAST}", LOCK_PORT))
            return True
        return False


def require_free_ports(container: Manifest, address: str) -> None:
    """Raises AssertionError, with the name of the process that listens, if a port of a container is in use."""
    for each in container.get("ports", []):
        require_free_port(address, each["containerPort"])


def require_free_port(address: str, port: int) -> None:
    """Raises AssertionError, with the name of the process that listens, if a port is in use."""
    with socket.socket() as wanted:
        wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wanted.bind((address, port))
        except OSError as error:
            raise AssertionError(f"a pod needs {address}:{port}, but it is in use by {listener_on(port)}") from error


def listener_on(port: int) -> str:
    """Returns a description of the process that listens on a port."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
            name = psutil.Process(each.pid).name() if each.pid else "a process of another user"
            return f"{name} (pid {each.pid}, on {each.laddr.ip})"
    return "an unknown process"
