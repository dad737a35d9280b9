"""The gateway's CPU beyond HTTP: its total, minus that of the same routes if their dispatcher answers at once."""

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
from bench.cost import Server
from bench.figures import Row
from bench.machine import ROOT
from bench.measurement import ClosedLoop, measure
from bench.step import MANY_CLIENTS, MANY_LEAD_S, Extent, Step, StepContext, figures_of
from bench.wrk import write_mix
from redbatch.up.local_redis import free_port
from shared.process.parent_death import wrap_command

PART = "cost"
TABLE = "http"
WORKERS = 2
STEP_S = 21.0
START_S = 20.0
STOP_S = 10.0


def steps(extent: Extent) -> list[Step]:
    """Returns the steps of each round."""
    return [Step(PART, "gateway overhead", STEP_S + 2 * extent.cost_window_s, run)]


def run(context: StepContext) -> list[Row]:
    """Measures a gateway with two workers, and a gateway that only speaks HTTP."""
    context.show(f"cost, gateway with {WORKERS} workers, {MANY_CLIENTS:,} clients")
    with cluster(Shape("null", workers=WORKERS)) as running:
        whole = _figures(context, running)
    context.show(f"cost, HTTP only, {MANY_CLIENTS:,} clients")
    with http_only_server() as server:
        http_only = _figures(context, server)
    cpu = "cpu_us.gateway"
    overhead = {cpu: whole[cpu] - http_only[cpu]}
    figures_by_server = {"gateway": whole, "HTTP only": http_only, "beyond HTTP": overhead}
    return [Row(TABLE, {"server": name}, figures) for name, figures in figures_by_server.items()]


def _figures(context: StepContext, server: Server) -> dict[str, float]:
    loop = ClosedLoop(MANY_CLIENTS, context.extent.cost_window_s, MANY_LEAD_S, warmup_s=0)
    return figures_of(measure(server, write_mix("short", context.folder), loop))


@dataclass(frozen=True, slots=True)
class HttpOnlyServer:
    """A gateway whose dispatcher answers at once."""

    url: str
    process: psutil.Process
    redis: None = None

    def processes(self) -> Mapping[str, list[psutil.Process]]:
        """Returns the only process, with the role gateway."""
        return {"gateway": [self.process]}


@contextmanager
def http_only_server() -> Iterator[HttpOnlyServer]:
    """Runs this gateway until the end of the block. Raises ClusterError if it does not start."""
    port = free_port()
    environment = clean_environment({"port": str(port), "admin_port": "0", "drain_delay_s": "0", "log_level": "error"})
    command = wrap_command([sys.executable, "-m", "bench.http_only"], signal.SIGTERM)
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        _wait_until_ready(f"http://{HOST}:{port}/health", process)
        yield HttpOnlyServer(f"http://{HOST}:{port}/embed", psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(POLL_S)
    raise ClusterError("bench.http_only did not start; run `python -m bench.http_only` to see the reason")
