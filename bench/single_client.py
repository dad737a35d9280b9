"""One client alone, beside `encode` of the same texts in a process of its own.

The two take turns, a few seconds each: the difference is a tenth of what they take, and the machine's speed drifts by
more than that from one minute to the next.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from bench.child_process import LimitError
from bench.cluster import Cluster, clean_environment
from bench.figures import Row
from bench.machine import ROOT
from bench.measurement import ClosedLoop, measure

TABLE = "alone"
TURNS = 5
LEAD_S = 0.5

Encode = Callable[[int], float]
"""Returns the median of what `encode` takes for each of the first so many texts, in ms."""


def alone(running: Cluster, bodies: Path, model: str, mix: str, turn_s: float) -> Row:
    """Returns the medians over the turns: of either, and of the difference between them in one turn."""
    served, encoded = [], []
    with _encoder(model, mix) as encode:
        for _ in range(TURNS):
            load = measure(running, bodies, ClosedLoop(1, turn_s, LEAD_S, warmup_s=0.0)).load
            served.append(load.p50_ms)
            encoded.append(encode(load.requests))
    beyond = [one - other for one, other in zip(served, encoded, strict=True)]
    figures = {"encode_p50_ms": encoded, "p50_ms": served, "beyond_encode_ms": beyond}
    return Row(TABLE, {"mix": mix}, {name: statistics.median(each) for name, each in figures.items()})


@contextmanager
def _encoder(model: str, mix: str) -> Iterator[Encode]:
    command = [sys.executable, "-m", "bench.encode_latency", model, mix]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=clean_environment({}), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

        def encode(texts: int) -> float:
            stdin.write(f"{texts}\n")
            stdin.flush()
            line = stdout.readline()
            if not line:
                raise LimitError(f"bench.encode_latency ended; python -m bench.encode_latency {model} {mix} says why")
            return float(line)

        try:
            encode(1)  # it has loaded
            yield encode
        finally:
            process.kill()
