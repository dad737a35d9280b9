"""Load from wrk: a native generator, which leaves most of two cores to the servers that are measured."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from redbatch.bench.target import encode_body
from redbatch.bench.texts import built_in_texts
from shared.process.listener import raise_open_file_limit

SCRIPT = Path(__file__).with_name("wrk.lua")
TIMEOUT_S = 60
"""A later answer counts as an error. Far above any latency measured here."""
MARGIN_S = 90.0
SETTLE_S = 1.0
FEW_CLIENTS = 1_000
CONNECT_S = 1.0
CONNECT_MANY_S = 4.0
"""A server refuses connections beyond its backlog at first; they are retried after 1 and 3 s."""


class GeneratorError(RuntimeError):
    """A load failed; the message gives the reason in one line."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Results of a closed loop: latencies are those of all answers; errors are answers 4xx and 5xx, and broken ones."""

    requests: int
    seconds: float
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @property
    def requests_per_s(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds


def write_mix(mix: str, folder: Path, seed: int = 1, count: int = 4096, inputs: int = 1) -> Path:
    """Writes the bodies of `count` requests with as many texts each as `inputs` says, and returns the file."""
    texts = islice(built_in_texts(mix, seed, inputs), count)
    return write_bodies(folder / f"{mix}-{seed}-{count}-{inputs}.jsonl", map(encode_body, texts))


def write_bodies(path: Path, bodies: Iterable[bytes]) -> Path:
    """Writes the bodies of requests as `wrk.lua` reads them, one a line, and returns the file."""
    path.write_bytes(b"\n".join(bodies) + b"\n")
    return path


def run(url: str, bodies: Path, *, clients: int, seconds: float) -> LoadResult:
    """Keeps `clients` requests in flight, each over a separate connection, and returns the results.

    wrk takes whole seconds: the time is rounded up. All connections are open before the time begins.

    Raises:
        GeneratorError: wrk is missing, or failed.
    """
    return parse(finish(start(url, bodies, clients=clients, seconds=seconds), seconds + connect_s(clients)))


def warm_up(url: str, bodies: Path, *, clients: int, seconds: float) -> None:
    """Sends a load that is not measured; requests that it leaves unfinished get SETTLE_S to end.

    Raises:
        GeneratorError: wrk is missing, or failed.
    """
    run(url, bodies, clients=clients, seconds=seconds)
    time.sleep(SETTLE_S)


def find_wrk() -> str:
    """Returns the path of wrk. Raises GeneratorError if it is not installed."""
    program = shutil.which("wrk")
    if program is None:
        raise GeneratorError("wrk is not installed: apt install wrk (Debian, Ubuntu) or brew install wrk (macOS)")
    return program


def connect_s(clients: int) -> float:
    """Returns the time from the start of wrk to the first request, in which all connections are opened (s)."""
    if clients == 1:
        return 0.0
    return CONNECT_S if clients <= FEW_CLIENTS else CONNECT_MANY_S


def start(url: str, bodies: Path, *, clients: int, seconds: float) -> subprocess.Popen[str]:
    """Starts such a load without waiting for its end; `parse` reads its output. Raises GeneratorError."""
    program = find_wrk()
    raise_open_file_limit()
    connect = connect_s(clients)
    command = [program, "-t1", f"-c{clients}", f"-d{math.ceil(seconds + connect)}s", f"--timeout={TIMEOUT_S}s"]
    arguments = ["-s", str(SCRIPT), url, "--", str(bodies), str(clients), str(round(connect * 1000))]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def parse(output: str) -> LoadResult:
    """Returns the results in the output of `wrk.lua`. Raises GeneratorError if there are none."""
    for line in output.splitlines():
        name, *values = line.split(" ")
        if name == "redbatch":
            requests, duration_us, errors, *latencies_us = map(int, values)
            return LoadResult(requests, duration_us / 1e6, errors, *(each / 1000 for each in latencies_us))
        if name == "redbatch-error":
            raise GeneratorError(" ".join(values))
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
    raise GeneratorError(f"wrk failed: {last}")


def finish(process: subprocess.Popen[str], seconds: float = 0.0) -> str:
    """Returns the output of a load that ends in `seconds` from now. Kills it if it takes over MARGIN_S longer."""
    try:
        return process.communicate(timeout=seconds + MARGIN_S)[0]
    finally:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """Kills a load that is still running."""
    if process.poll() is None:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class Ticks:
    """Numbers of requests sent by given times (seconds since the epoch), in order and about 20 ms apart."""

    at_s: tuple[float, ...]
    sent: tuple[int, ...]

    def sent_by(self, at_s: float) -> float:
        """Returns the number of requests sent by a time: in a closed loop, those answered plus those in flight.

        Raises:
            GeneratorError: the load had not started, or had ended.
        """
        after = bisect_left(self.at_s, at_s)
        if not 0 < after < len(self.at_s):
            raise GeneratorError("the load did not last for the whole measurement")
        (start_s, end_s), (first, last) = self.at_s[after - 1 : after + 1], self.sent[after - 1 : after + 1]
        return first + (last - first) * (at_s - start_s) / (end_s - start_s)


def parse_ticks(output: str) -> Ticks:
    """Returns the ticks in the output of `wrk.lua`; none if it has none."""
    for line in output.splitlines():
        name, *values = line.split(" ")
        if name == "redbatch-ticks":
            pairs = [each.split(":") for each in values if each]
            return Ticks(tuple(int(at) / 1e6 for at, _ in pairs), tuple(int(sent) for _, sent in pairs))
    return Ticks((), ())
