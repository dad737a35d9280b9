"""A custom function behind POST /predict, and the effect of batching on it.

    python squares.py                         # starts two clusters, one after the other, and compares (three minutes)

    redbatch up --model squares:Squares --max-batch-size 200      # or, in this folder: a cluster to play with
    python squares.py http://127.0.0.1:8080                       # which this measures

The function squares numbers, and takes 0.001 ln(n + 1) seconds for n of them: as with most models, many at once take
hardly longer than one. The client requests the same squares in three ways, and prints the time of each.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

MAX_BATCH_SIZE = 200
TIMEOUT_S = 120
CONNECTIONS = 64
"""Requests at the same time, each on a separate connection. More would measure this client."""

ROUNDS = 5
"""The time of a way is the median of this many rounds; one by one there is one, which takes long enough."""

PROGRESS = 100
"""One by one, a line on stderr follows each time this many numbers."""

WAITS_MS = (100, 0)
"""A batch that is not full waits this long for more inputs: 0.1 s, and not at all, which is Redbatch's default."""


class Squares:
    """Squares numbers.

    Args:
        base_s: a batch of n numbers takes `base_s * ln(n + 1)` seconds. `--model-args '{"base_s": 0.01}'` is slower.
    """

    def __init__(self, base_s: float = 0.001) -> None:
        self._base_s = base_s

    def preprocess(self, inputs: list[object]) -> list[float]:
        """Returns a batch of numbers. Raises InputRefusedError for any other value; its client gets the message."""
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in inputs):
            from gpuworker.functions import InputRefusedError  # noqa: PLC0415 - the client runs without an installed worker

            raise InputRefusedError("Send a number.")
        return [float(each) for each in inputs]  # type: ignore[arg-type]  # they are numbers

    def transform(self, batch: list[float]) -> list[float]:
        """Returns the squares of a batch of numbers."""
        time.sleep(self._base_s * math.log(len(batch) + 1))
        return [value * value for value in batch]

    def postprocess(self, preprocessed: list[float], outputs: list[float]) -> list[float]:
        """Returns the squares as they are; `preprocessed` has the numbers, for functions that need them."""
        return [square for _, square in zip(preprocessed, outputs, strict=True)]


async def one_by_one(client: httpx.AsyncClient, numbers: Sequence[int]) -> list[float]:
    """Requests each square after the previous one has arrived; that takes long, so it prints how far it is."""
    squares = []
    for count, number in enumerate(numbers, start=1):
        squares.append(await _square(client, number))
        if count % PROGRESS == 0:
            _report(f"one by one: {count} of {len(numbers)}")
    return squares


async def each_at_once(client: httpx.AsyncClient, numbers: Sequence[int]) -> list[float]:
    """Requests all squares at the same time, each in a separate request, like many clients."""
    free = asyncio.Semaphore(CONNECTIONS)

    async def square(number: int) -> float:
        async with free:
            return await _square(client, number)

    return list(await asyncio.gather(*map(square, numbers)))


async def in_one_request(client: httpx.AsyncClient, numbers: Sequence[int]) -> list[float]:
    """Requests all squares in one request."""
    response = await client.post("/predict", json={"inputs": numbers})
    outputs: list[float] = response.raise_for_status().json()["outputs"]
    return outputs


async def _square(client: httpx.AsyncClient, number: int) -> float:
    response = await client.post("/predict", json={"input": number})
    return float(response.raise_for_status().json()["output"])


async def measure(url: str, numbers: Sequence[int]) -> None:
    """Requests the squares in all three ways, and checks that the outputs have the order of their inputs."""
    ways: dict[str, Callable[[httpx.AsyncClient, Sequence[int]], Awaitable[list[float]]]] = {
        "one by one": one_by_one,
        "each at once": each_at_once,
        "in one request": in_one_request,
    }
    first_s = 0.0
    rounds = dict.fromkeys(ways, ROUNDS) | {"one by one": 1}
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        for name, request in ways.items():
            durations = []
            for number in range(rounds[name]):
                _report(f"{name}: round {number + 1} of {rounds[name]} ...")
                durations.append(await _time(name, request(client, numbers), numbers))
            duration_s = statistics.median(durations)
            first_s = first_s or duration_s
            sys.stdout.write(f"{name:<15} {duration_s:7.3f} s   {compare(first_s, duration_s)}\n")
            sys.stdout.flush()


def compare(first_s: float, duration_s: float) -> str:
    """Returns how fast a way is, compared with the first one; none is slower, unless other programs slow it down."""
    if duration_s > first_s:
        return f"{duration_s / first_s:6.1f} times as long: this machine is busy, so measure again"
    return f"{first_s / duration_s:6.1f} times as fast"


def _report(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


async def _time(name: str, squares: Awaitable[list[float]], numbers: Sequence[int]) -> float:
    """Returns how long some squares take, s. Ends the program if they are wrong."""
    start = time.perf_counter()
    if await squares != [number**2 for number in numbers]:
        sys.exit(f"{name}: the squares are wrong, or not in order")
    return time.perf_counter() - start


@contextmanager
def cluster(wait_ms: int) -> Iterator[str]:
    """Runs `redbatch up` with this function; yields its URL."""
    command = [sys.executable, "-m", "redbatch", "up", "--model", "squares:Squares", "--port", "0"]
    command += ["--max-batch-size", str(MAX_BATCH_SIZE), "--max-batch-wait-ms", str(wait_ms)]
    folder = Path(__file__).parent
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as program:
        try:
            lines = program.stdout or ()
            yield next(found[1] for line in lines if (found := re.match(r"\s*API:?\s+(http://\S+)", line)))
        finally:
            program.terminate()
            program.communicate()


def main() -> None:
    """Measures the cluster of the URL, or starts two clusters and compares them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--numbers", type=int, default=880)
    arguments = parser.parse_args()
    numbers = range(arguments.numbers)
    if arguments.url:
        asyncio.run(measure(arguments.url, list(numbers)))
        return
    for wait_ms in WAITS_MS:
        with cluster(wait_ms) as url:
            sys.stdout.write(f"--max-batch-size {MAX_BATCH_SIZE} --max-batch-wait-ms {wait_ms}\n")
            sys.stdout.flush()
            asyncio.run(measure(url, list(numbers)))


if __name__ == "__main__":
    main()
