"""A custom function behind POST /predict, and the effect of batching on it.

    redbatch up --model squares:Squares --max-batch-size 1000     # in this folder
    python squares.py http://127.0.0.1:8080

The function squares numbers, and takes 0.001 ln(n + 1) seconds for n of them: as with most models, many at once take
hardly longer than one. The second command requests the same squares in three ways, and prints the time of each.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx

NUMBERS = tuple(range(880))
TIMEOUT_S = 120
CONNECTIONS = 64
"""Maximum number of connections. More would measure how fast this client opens them."""


class Squares:
    """Squares numbers.

    Args:
        base_s: a batch of n numbers takes `base_s * ln(n + 1)` seconds. `--model-args '{"base_s": 0.01}'` is slower.
    """

    def __init__(self, base_s: float = 0.001) -> None:
        self._base_s = base_s

    def preprocess(self, value: object) -> float:
        """Returns one number. Raises InputRefusedError for any other value; the client gets its message."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            from gpuworker.functions import InputRefusedError  # noqa: PLC0415 - the client runs without an installed worker

            raise InputRefusedError("Send a number.")
        return float(value)

    def transform(self, values: Sequence[float]) -> list[float]:
        """Returns the squares of a batch of numbers."""
        time.sleep(self._base_s * math.log(len(values) + 1))
        return [value * value for value in values]

    def postprocess(self, result: float) -> float:
        """Returns one square, unchanged."""
        return result


async def one_by_one(client: httpx.AsyncClient) -> list[float]:
    """Requests each square after the previous one has arrived."""
    return [await _square(client, number) for number in NUMBERS]


async def each_at_once(client: httpx.AsyncClient) -> list[float]:
    """Requests all squares at the same time, each in a separate request, like many clients."""
    return list(await asyncio.gather(*(_square(client, number) for number in NUMBERS)))


async def in_one_request(client: httpx.AsyncClient) -> list[float]:
    """Requests all squares in one request."""
    response = await client.post("/predict", json={"inputs": NUMBERS})
    outputs: list[float] = response.raise_for_status().json()["outputs"]
    return outputs


async def _square(client: httpx.AsyncClient, number: int) -> float:
    response = await client.post("/predict", json={"input": number})
    return float(response.raise_for_status().json()["output"])


async def main(url: str) -> None:
    """Requests the squares in all three ways, and checks that the outputs have the order of their inputs."""
    ways: dict[str, Callable[[httpx.AsyncClient], Awaitable[list[float]]]] = {
        "one by one": one_by_one,
        "each at once": each_at_once,
        "in one request": in_one_request,
    }
    slowest_s = 0.0
    async with httpx.AsyncClient(
        base_url=url, timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=CONNECTIONS)
    ) as client:
        for name, request in ways.items():
            start = time.perf_counter()
            squares = await request(client)
            duration_s = time.perf_counter() - start
            if squares != [number**2 for number in NUMBERS]:
                sys.exit(f"{name}: the squares are wrong, or not in order")
            slowest_s = slowest_s or duration_s
            sys.stdout.write(f"{name:<15} {duration_s:7.3f} s   {slowest_s / duration_s:6.1f} times as fast\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8080")
    asyncio.run(main(parser.parse_args().url))
