"""The gateway's CPU beyond HTTP: its own, less that of the same routes when they are answered at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx
import psutil

from bench.cluster import HOST, POLL_S, ClusterError, Shape, clean_environment, cluster
from bench.cost import Served
from bench.figures import Row
from bench.generator import bodies
from bench.machine import ROOT
from bench.measure import ClosedLoop, measure
from bench.stage import MANY_CLIENTS, MANY_LEAD_S, Extent, Stage, Step, figures_of
from shared.process.parent_death import wrapped
from redbatch.up.local_redis import free_port

PART = "cost"
TABLE = "http"
WORKERS = 2
STEP_S = 21.0
START_S = 20.0
STOP_S = 10.0


def steps(extent: Extent) -> list[Step]:
    """Returns what is to be done in each round."""
    return [Step(PART, "beyond HTTP", STEP_S + 2 * extent.cost_window_s, run)]


def run(stage: Stage) -> list[Row]:
    """Measures the gateway with two workers behind it, and HTTP alone."""
    stage.say(f"cost, gateway with {WORKERS} workers, {MANY_CLIENTS:,} clients")
    with cluster(Shape("null", workers=WORKERS)) as running:
        whole = _figures(stage, running)
    stage.say(f"cost, HTTP alone, {MANY_CLIENTS:,} clients")
    with http_alone() as server:
        alone = _figures(stage, server)
    cpu = "cpu_us.gateway"
    beyond = {cpu: whole[cpu] - alone[cpu]}
    found = {"gateway": whole, "HTTP alone": alone, "beyond HTTP": beyond}
    return [Row(TABLE, {"what": what}, figures) for what, figures in found.items()]


def _figures(stage: Stage, served: Served) -> dict[str, float]:
    loop = ClosedLoop(MANY_CLIENTS, stage.extent.cost_window_s, MANY_LEAD_S, warmup_s=0)
    return figures_of(measure(served, bodies("short", stage.folder), loop))


@dataclass(frozen=True, slots=True)
class HttpAlone:
    """A gateway's server whose dispatcher answers at once."""

    url: str
    process: psutil.Process
    redis: None = None

    def processes(self) -> Mapping[str, list[psutil.Process]]:
        """Returns the one process, as the gateway it is."""
        return {"gateway": [self.process]}


@contextmanager
def http_alone() -> Iterator[HttpAlone]:
    """Runs it until the end of the block."""
    port = free_port()
    environment = clean_environment({"port": str(port), "admin_port": "0", "drain_delay_s": "0", "log_level": "error"})
    command = wrapped([sys.executable, "-m", "bench.http_alone"], signal.SIGTERM)
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        _wait(f"http://{HOST}:{port}/health", process)
        yield HttpAlone(f"http://{HOST}:{port}/embed", psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(POLL_S)
    raise ClusterError("bench.http_alone did not start: run it yourself to see why")
