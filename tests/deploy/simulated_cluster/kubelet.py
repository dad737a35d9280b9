"""Plays a kubelet: runs the container of a pod as its manifest says, probes it, and ends it as Kubernetes does.

What is a pod's own there is played by what a process can have: its address by one of the loopback's, its mounts by
folders. All else is the manifest's and the image's: the command, the variables, the probes and their times.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import socket
import time
from typing import Self

import httpx
import psutil

from tests import plain_http
from tests.deploy.manifests import Manifest, pod_of
from tests.deploy.simulated_cluster.container import Place, Run, container_of, known
from tests.deploy.simulated_cluster.probe import Probe
from tests.processes import Processes, Program
from tests.waiting import wait_until

LEAST_S = 2.0
"""What a kubelet gives a container after SIGTERM even where `preStop` has used up the grace."""

BACKOFF_S = 10.0
BLOCKS, LAST, LOCK_PORT = 250, 254, 7707


class Pod:
    """A pod with one container.

    Args:
        workload: what it is one of.
        place: what it knows of itself.
        run: what its container runs.
        processes: where its process is started.

    Attributes:
        leaving: whether it has been deleted: from then on no Service has it.
        ready: whether it may be sent requests.
        ready_at: since when (s, monotonic).
        restarts: how often its container was begun again, since it had ended or was not alive.
    """

    def __init__(self, workload: Manifest, place: Place, run: Run, processes: Processes) -> None:
        self.place = place
        self.name = place.name
        self.env = run.env
        self.container = container_of(workload)
        self.grace_s = float(pod_of(workload).get("terminationGracePeriodSeconds", 30))
        self.leaving = self.ready = False
        self.ready_at = 0.0
        self.restarts = 0
        self.program: Program | None = None
        self._began = 0.0
        self._words = " ".join(run.words)
        self._probes = {
            name: Probe.of(self.container, f"{name}Probe", place.address)
            for name in ("startup", "readiness", "liveness")
        }
        self._processes = processes
        self._running: asyncio.Task[None] | None = None

    @property
    def pre_stop_s(self) -> float:
        """How long its container's `preStop` sleeps."""
        given = self.container.get("lifecycle", {})
        known(given, {"preStop"}, f"{self.name}: lifecycle")
        known(given.get("preStop", {}), {"sleep"}, f"{self.name}: preStop")
        return float(given.get("preStop", {}).get("sleep", {}).get("seconds", 0))

    def start(self) -> None:
        """Starts it; it is ready some time later. Raises AssertionError: somebody is on one of its ports."""
        for each in self.container.get("ports", []):
            see_free(self.place.address, each["containerPort"])
        self._running = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raises what the play of it has raised, and AssertionError when its container was begun again."""
        if self._running is not None and self._running.done():
            self._running.result()
        assert self.restarts == 0, f"{self.name} does not stay\n{self.last_words()}"

    def last_words(self) -> str:
        """The end of its log."""
        return self.program.last_words() if self.program else "it was never started"

    async def end(self, grace_s: float | None = None) -> int:
        """Deletes it: `preStop`, then SIGTERM, and SIGKILL at the end of the grace. Returns the exit code.

        Args:
            grace_s: another grace than the manifest's.
        """
        self.leaving, self.ready = True, False
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        return await self._end_container(self.grace_s if grace_s is None else grace_s)

    async def _end_container(self, grace_s: float) -> int:
        """Ends the container. `preStop` counts in the grace, and of one that has ended there is nothing to stop."""
        if self.program is None:
            return 0
        until = time.monotonic() + grace_s
        if self.program.running and grace_s > 0:
            await asyncio.sleep(min(self.pre_stop_s, grace_s))
        try:
            return await self.program.stop(max(LEAST_S, until - time.monotonic()) if grace_s > 0 else 0.0)
        except AssertionError:
            self.program.kill()
            return -signal.SIGKILL

    async def _run(self) -> None:
        async with plain_http.client() as client:
            while True:
                self._began = time.monotonic()
                self.program = await self._processes.start(self.name, self._words, self.env)
                await self._watch(client)
                self.ready = False
                self.restarts += 1
                await self._end_container(self.grace_s)
                await asyncio.sleep(BACKOFF_S * (self.restarts > 1))

    async def _watch(self, client: httpx.AsyncClient) -> None:
        """Returns when the container has to be begun again: when it has ended, or is not alive."""
        assert self.program is not None
        waits = [self._until_ended(self.program), self._until_unwell(client)]
        tasks = [asyncio.ensure_future(each) for each in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_ended(self, program: Program) -> None:
        await wait_until(lambda: not program.running, "it has ended", timeout_s=math.inf, poll_s=0.05)

    async def _until_unwell(self, client: httpx.AsyncClient) -> None:
        """Nobody asks whether it is ready or alive before it has started."""
        if not await anext(self._probes["startup"].verdicts(client, self._began)):
            return
        readiness = asyncio.create_task(self._watch_readiness(client))
        try:
            async for alive in self._probes["liveness"].verdicts(client, self._began):
                if not alive:
                    return
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)

    async def _watch_readiness(self, client: httpx.AsyncClient) -> None:
        async for ready in self._probes["readiness"].verdicts(client, self._began):
            if ready and not self.ready:
                self.ready_at = time.monotonic()
            self.ready = ready


class Addresses:
    """Addresses of the loopback that no other play on this machine has, so that all pods may have the same ports."""

    def __init__(self) -> None:
        self._held = socket.socket()
        self._block = next(each for each in random.sample(range(BLOCKS), BLOCKS) if self._hold(each))
        self._given = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._held.close()

    def take(self) -> tuple[int, str]:
        """Returns one, and its number."""
        self._given += 1
        assert self._given < LAST, "there are no more addresses"
        return self._given, f"127.77.{self._block}.{self._given}"

    def _hold(self, block: int) -> bool:
        """Whether a block was free; whoever is bound to the last of its addresses has it."""
        with contextlib.suppress(OSError):
            self._held.bind((f"127.77.{block}.{LAST}", LOCK_PORT))
            return True
        return False


def see_free(address: str, port: int) -> None:
    """Raises AssertionError: nobody may listen on a port, since somebody does who must be known by name."""
    with socket.socket() as wanted:
        wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wanted.bind((address, port))
        except OSError as error:
            raise AssertionError(f"a pod needs {address}:{port}, where {who_is_on(port)} is in the way") from error


def who_is_on(port: int) -> str:
    """Returns who listens on a port."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
            name = psutil.Process(each.pid).name() if each.pid else "a process of another user"
            return f"{name} (pid {each.pid}, on {each.laddr.ip})"
    return "somebody"
