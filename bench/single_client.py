"""Latency of a single client, compared with `encode` of the same texts in a separate process.

The two alternate, for a few seconds each: the difference is a tenth of either latency, and the machine's speed drifts
by more than that from one minute to the next.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from bench.child_process import ModuleError
from bench.cluster import Cluster, clean_environment
from bench.figures import Row
from bench.machine import ROOT
from bench.measurement import ClosedLoop, measure

TABLE = "single-client"
ALTERNATIONS = 5
LEAD_S = 0.5

Encode = Callable[[int], float]
"""Takes a number of texts; returns the median time of `encode` for each of the first texts, in ms."""


def compare_with_encode(running: Cluster, bodies: Path, model: str, mix: str, seconds: float) -> Row:
    """Returns medians over all alternations: of both latencies, and of their difference in one alternation.

    `seconds` is the length of each measurement of the client.
    """
    served_ms, encoded_ms = [], []
    with _encoder(model, mix) as encode:
        for _ in range(ALTERNATIONS):
            load = measure(running, bodies, ClosedLoop(1, seconds, LEAD_S, warmup_s=0.0)).load
            served_ms.append(load.p50_ms)
            encoded_ms.append(encode(load.requests))
    differences = [one - other for one, other in zip(served_ms, encoded_ms, strict=True)]
    figures = {"encode_p50_ms": encoded_ms, "p50_ms": served_ms, "difference_ms": differences}
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
                raise ModuleError(f"bench.encode_latency ended; python -m bench.encode_latency {model} {mix} says why")
            return float(line)

        try:
            encode(1)  # the answer comes when the model is loaded
            yield encode
        finally:
            process.kill()
