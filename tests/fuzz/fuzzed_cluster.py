"""A gateway, its workers and its Redis: what they log, whether they live, and how much memory they use."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

from tests import plain_http
from tests.fuzz import grammar, routes
from tests.fuzz.judge import DEADLINE_EXCEEDED
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, gateway_of, is_listening
from tests.processes import Processes, Program
from tests.servers import Server
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
READY_S, STOP_S, IDLE_S = 30.0, 40.0, 3.0
QUEUE = "null"
SETTINGS = {
    "all_queues": True,
    "max_head_bytes": grammar.MAX_HEAD_BYTES,
    "max_head_fields": grammar.MAX_HEAD_FIELDS,
    "max_url_bytes": grammar.MAX_URL_BYTES,
    "max_body_bytes": 20_000,
    "max_input_chars": 2_000,
    "max_input_bytes": 2_000,
    "max_inputs": 64,
    "max_job_inputs": 128,
    "job_ttl_s": 60,
    "request_timeout_ms": 60_000,
    "keep_alive_s": 300,
}
"""Of the gateway: its limits are small, so that small cases reach them."""

SERIOUS = ("error", "critical")


class FaultLoggedError(AssertionError):
    """A process has logged an error, or a traceback."""


class OpenConnectionsError(AssertionError):
    """Connections stay open although all clients have left."""


class FuzzedCluster:
    """A gateway with workers of the null model, a function, a classifier and a reranker, and a Redis for these alone.

    Args:
        folder: of the logs.

    Attributes:
        gateway: the one under test.
        job: the public id of a job that has ended.
    """

    gateway: GatewayProcess
    job: bytes

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runner = asyncio.Runner()
        self._server = Server()
        self._read_bytes: dict[Path, int] = {}

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._processes = Processes(self._folder)
        self._cluster = GatewayCluster(self._processes, self._server.url, QUEUE)
        self._cluster.environment["PYTHONPATH"] = str(ROOT)
        try:
            self._runner.run(self._start())
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._processes.__aexit__(*error))
        self._runner.close()
        self._server.stop()

    def start_gateway(self, module: str = "api", **variables: str) -> None:
        """Replaces the gateway by another one: `python -m module`, with these additional environment variables."""
        self._runner.run(self.gateway.program.stop(STOP_S))
        self._runner.run(self._start_gateway(module, variables))
        list(self.logged_faults())  # of the gateway before

    def create_job(self) -> None:
        """Creates a job, whose id is then `job`: the one before is deleted after a while."""
        answer = plain_http.post(f"{self.gateway.url}/jobs", json={"texts": ["one", "two"]})
        self.job = answer.json()["id"].encode()

    def logged_faults(self) -> Iterator[str]:
        """Yields the lines since the last call that report an error. The one of a missed deadline is none."""
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                lines, line_end, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] = self._read_bytes.get(path, 0) + len(lines + line_end)
            yield from (f"{path.name}: {line}" for line in lines.decode().splitlines() if _is_fault(line))

    def check(self) -> None:
        """Raises FaultLoggedError: a process has logged an error. Replaces the gateway if it has ended."""
        faults = list(self.logged_faults())
        program = self.gateway.program
        if not program.running:
            faults.append(f"the gateway has ended:\n{program.log_tail()}")
            self.start_gateway()
        if faults:
            raise FaultLoggedError("\n".join(faults[:20]))

    def memory_bytes(self) -> dict[str, int]:
        """Returns the resident memory of each process, by its title."""
        found = {"gateway": psutil.Process(self.gateway.program.pid).memory_info().rss}
        for worker in self._workers:
            found |= {f"{worker.name}-{n}": each.memory_info().rss for n, each in enumerate(worker.session())}
        return found

    def check_idle(self) -> None:
        """Raises OpenConnectionsError: connections stay open although all clients have left."""
        until = time.monotonic() + IDLE_S
        while num_connections := int(self.gateway.metric("redbatch_connections")):
            if time.monotonic() > until:
                raise OpenConnectionsError(f"{num_connections} connections stay open")
            time.sleep(0.02)

    async def _start(self) -> None:
        function = {"model": "tests.fuzz.echo_function:TypeNames", "queue": routes.FUNCTION}
        self._workers: list[Program] = list(
            await asyncio.gather(
                self._cluster.start_worker(),
                self._cluster.start_worker(**function),
                self._cluster.start_worker("simulated:base_ms=0,item_ms=0,labels=3", queue=routes.CLASSIFIER),
                self._cluster.start_worker("simulated:base_ms=0,item_ms=0,labels=1", queue=routes.RERANKER),
            )
        )
        await self._start_gateway("api", {})

    async def _start_gateway(self, module: str, variables: dict[str, str]) -> None:
        env = self._cluster.env(**SETTINGS) | variables
        self.gateway = gateway_of(await self._processes.start("gateway", module, env, is_listening))
        await wait_until(self._serves_all, "the gateway sees all workers", timeout_s=READY_S)
        self.create_job()

    def _serves_all(self) -> bool:
        models = plain_http.get(f"{self.gateway.url}/v1/models").json()["data"]
        return {QUEUE, routes.FUNCTION, routes.CLASSIFIER, routes.RERANKER} <= {
            each["id"] for each in models
        } and not self.gateway.missing()


def _is_fault(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return True
    is_late = record.get("status") == DEADLINE_EXCEEDED
    return "Traceback" in line or (record.get("level") in SERIOUS and not is_late)
