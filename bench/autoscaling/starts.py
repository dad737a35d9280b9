"""How long a gateway and a worker take from their start to readiness, here."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from urllib.error import URLError
from urllib.request import urlopen

from bench.cluster import HOST, POLL_S, STOP_S, clean_environment
from redbatch.local_redis import LocalRedis, free_port

TIMES = 5
LONGEST_S = 120.0


def measure(times: int = TIMES) -> dict[str, float]:
    """Returns the medians of several starts (s), by role: gateway, and worker with MiniLM on this CPU.

    Raises TimeoutError: one was not ready for two minutes.
    """
    with LocalRedis() as server:
        environment = clean_environment({"redis_url": server.url})
        return {
            "gateway": statistics.median(
                _start(["gateway", "--port", "0"], "worker", environment) for _ in range(times)
            ),
            "worker": statistics.median(_start(["worker"], "redis", environment) for _ in range(times)),
        }


def _start(words: Sequence[str], exclude: str, environment: dict[str, str]) -> float:
    port, began = free_port(), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "redbatch", *words, "--admin-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment | {"REDBATCH_DRAIN_DELAY_S": "0"},
    )
    try:
        while time.monotonic() < began + LONGEST_S:
            with (
                suppress(URLError, OSError),
                urlopen(f"http://{HOST}:{port}/readyz?exclude={exclude}", timeout=LONGEST_S),
            ):
                return time.monotonic() - began
            time.sleep(POLL_S)
    finally:
        process.terminate()
        process.wait(STOP_S)
    raise TimeoutError(f"{words[0]} was not ready for {LONGEST_S:.0f} s")
