"""How long real processes take to be ready: `python -m bench.autoscaling --starts`.

From the start of the process to the first 200 of /readyz, each with a Redis of its own, one after the other.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import httpx

from bench.cluster import HOST, START_S, STOP_S, ClusterError, clean_environment
from shared.process.parent_death import wrapped
from redbatch.up.local_redis import LocalRedis, free_port

RUNS = 5
POLL_S = 0.02
Role = Literal["gateway", "worker"]


def measure(role: Role, redis_url: str) -> float:
    """Returns the seconds of one start; a gateway is ready without a worker, as its pod is. Raises ClusterError."""
    port = free_port()
    settings = {"redis_url": redis_url, "admin_port": str(port)} | ({"port": "0"} if role == "gateway" else {})
    began_s = time.monotonic()
    with _process(role, settings) as process:
        url = f"http://{HOST}:{port}/readyz" + ("?exclude=worker" if role == "gateway" else "")
        while time.monotonic() - began_s < START_S and process.poll() is None:
            if _answers(url):
                return time.monotonic() - began_s
            time.sleep(POLL_S)
    raise ClusterError(f"the {role} did not become ready")


def measure_all(runs: int = RUNS) -> dict[str, list[float]]:
    """Returns the seconds of so many starts of each role, in turns."""
    found: dict[str, list[float]] = {"gateway": [], "worker": []}
    with LocalRedis() as server:
        for _ in range(runs):
            found["gateway"].append(measure("gateway", server.url))
            found["worker"].append(measure("worker", server.url))
    return found


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=START_S).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@contextmanager
def _process(role: Role, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        wrapped([sys.executable, "-P", "-m", "redbatch", role], signal.SIGTERM),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(settings),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_S)
