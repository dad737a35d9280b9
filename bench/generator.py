"""Load from wrk: a native generator, so that two cores have as much as can be for what is measured."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from redbatch.bench.target import body_of
from redbatch.bench.texts import built_in
from shared.process.listener import raise_open_file_limit

SCRIPT = Path(__file__).with_name("wrk.lua")
TIMEOUT_S = 60
"""A later answer counts as an error. It is far above any latency here."""
MARGIN_S = 90.0
SETTLE_S = 1.0
FEW_CLIENTS = 1_000
CONNECT_S = 1.0
CONNECT_MANY_S = 4.0
"""More connections than a server's backlog are refused at first, and tried again after 1 and 3 s."""


class GeneratorError(RuntimeError):
    """The load cannot be made; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a closed loop: latencies are of all answers, errors are answers of 4xx and 5xx, and broken ones."""

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


def bodies(mix: str, folder: Path, seed: int = 1, count: int = 4096) -> Path:
    """Writes the bodies of so many requests with one text each, one a line, and returns the file."""
    path = folder / f"{mix}-{seed}-{count}.jsonl"
    lines = [body_of(texts) for texts in islice(built_in(mix, seed, 1), count)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def drive(url: str, bodies: Path, *, clients: int, seconds: float, warmup_s: float = 1.0) -> Load:
    """Keeps `clients` requests in flight, each over a connection of its own, and returns what came of them.

    wrk knows whole seconds: both times are rounded up. All connections stand before the time begins. The warmup is a
    run of its own, and what it left unfinished gets SETTLE_S to end.

    Raises:
        GeneratorError: wrk is missing, or failed.
    """
    if warmup_s > 0:
        _run(url, bodies, clients, warmup_s)
        time.sleep(SETTLE_S)
    return parse(_run(url, bodies, clients, seconds))


def find_wrk() -> str:
    """Returns the program. Raises GeneratorError when it is missing."""
    program = shutil.which("wrk")
    if program is None:
        raise GeneratorError("wrk is not installed: apt install wrk (Debian, Ubuntu) or brew install wrk (macOS)")
    return program


def connect_s(clients: int) -> float:
    """Returns how long after the start of wrk the first request is sent."""
    if clients == 1:
        return 0.0
    return CONNECT_S if clients <= FEW_CLIENTS else CONNECT_MANY_S


def start(url: str, bodies: Path, *, clients: int, seconds: float) -> subprocess.Popen[str]:
    """Starts such a load without waiting for its end: `parse` reads what it prints. Raises GeneratorError."""
    program = find_wrk()
    raise_open_file_limit()
    connect = connect_s(clients)
    command = [program, "-t1", f"-c{clients}", f"-d{math.ceil(seconds + connect)}s", f"--timeout={TIMEOUT_S}s"]
    arguments = ["-s", str(SCRIPT), url, "--", str(bodies), str(clients), str(round(connect * 1000))]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def parse(output: str) -> Load:
    """Returns what the line of `wrk.lua` says. Raises GeneratorError when there is none."""
    for line in output.splitlines():
        name, *values = line.split(" ")
        if name == "redbatch":
            requests, duration_us, errors, *latencies_us = map(int, values)
            return Load(requests, duration_us / 1e6, errors, *(each / 1000 for each in latencies_us))
        if name == "redbatch-error":
            raise GeneratorError(" ".join(values))
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
    raise GeneratorError(f"wrk failed: {last}")


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a load that has not ended by itself."""
    if process.poll() is None:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class Ticks:
    """How many requests had been sent by when (seconds since the epoch): some 20 ms apart, in order."""

    at_s: tuple[float, ...]
    sent: tuple[int, ...]

    def sent_by(self, at_s: float) -> float:
        """Returns how many had been sent by then: in a closed loop, as many as were answered, and those in flight.

        Raises:
            GeneratorError: the load had not begun, or was over.
        """
        after = bisect_left(self.at_s, at_s)
        if not 0 < after < len(self.at_s):
            raise GeneratorError("the load did not last as long as what was to be measured")
        (start_s, end_s), (first, last) = self.at_s[after - 1 : after + 1], self.sent[after - 1 : after + 1]
        return first + (last - first) * (at_s - start_s) / (end_s - start_s)


def parse_ticks(output: str) -> Ticks:
    """Returns what the second line of `wrk.lua` says."""
    for line in output.splitlines():
        name, *values = line.split(" ")
        if name == "redbatch-ticks":
            pairs = [each.split(":") for each in values if each]
            return Ticks(tuple(int(at) / 1e6 for at, _ in pairs), tuple(int(sent) for _, sent in pairs))
    return Ticks((), ())


def _run(url: str, bodies: Path, clients: int, seconds: float) -> str:
    process = start(url, bodies, clients=clients, seconds=seconds)
    try:
        return process.communicate(timeout=seconds + connect_s(clients) + MARGIN_S)[0]
    finally:
        stop(process)
