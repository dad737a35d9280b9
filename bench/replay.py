"""`make bench-replay`: what a request costs Redis on 1, 2 and 3 servers, without HTTP and without a model.

python -m bench.replay [--servers 1,2,3] [--batch 64] [--rounds 5] [--quick]

One process sends each server what gateways and workers send: the scripts that submit, claim and commit, and the
commands that collect replies, each for as many requests at once as `--batch` says. On few cores the process itself is
the limit, not the servers: so the CPU time of a server per request is what counts, and how much several servers do
together is calculated from it, for a core for each.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import psutil
import typer
import uvloop

from bench.figures import Row
from bench.publication import Publication, publish, start_run
from bench.tables import markdown
from redbatch.up.local_redis import LocalRedis
from shared import consumer, producer
from shared.codec import encode_body
from shared.consumer import ClaimBudget, CommitOptions, EntryAnswer
from shared.messages import EMBED, Body, NewEntry
from shared.producer import Bell, QueueBound, Submission
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings

BLOCK = "replay"
PAIRS = 4
"""Gateways and workers of each server, of which some work while others wait for Redis."""

WARMUP_S, WINDOW_S = 0.5, 3.0
BUDGET_MS = 30_000
TOKENS = 16
BOUND = QueueBound(1_000_000, 100_000_000, 2**32)
REPLY_BYTES = 4 * 384 + 64
"""Of a reply with a vector of 384 numbers."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one round has measured: requests/s of all servers together, and CPU of a server per request, µs."""

    requests_per_s: float
    redis_us: float


class _Pair:
    """A gateway and a worker of one server, each with one connection, which work in turns."""

    def __init__(self, connections: QueueConnections, number: int, batch: int) -> None:
        self._gateway, self._worker = (
            connections.connection(f"gateway-{number}"),
            connections.connection(f"worker-{number}"),
        )
        self._keys, self._batch = connections.keys, batch
        self._name, self._numbers = secrets.token_hex(8), itertools.count(1)
        self._body = encode_body(Body(EMBED, (f"a text of some words, of pair {number}",)))
        self.num_done = 0

    async def run(self) -> None:
        """Takes requests through the queue until it is cancelled. Raises RedisUnreachableError."""
        await consumer.join(self._worker, self._keys)
        bell, options = self._keys.bell(self._name), CommitOptions(self._name, grace_ms=10_000)
        budget = ClaimBudget(self._batch, TOKENS * self._batch, workers=1, held=0)
        while True:
            entries = (NewEntry(0, 1, TOKENS, self._body, len(self._body)),)
            submissions = [Submission(secrets.token_hex(16), entries, BUDGET_MS, bell=bell) for _ in range(self._batch)]
            await producer.submit(self._gateway, self._keys, self._name, next(self._numbers), BOUND, submissions)
            claimed = (await consumer.claim(self._worker, self._keys, self._name, budget)).entries
            answers = [EntryAnswer(each, bytes(REPLY_BYTES)) for each in claimed]
            if answers:
                await consumer.commit(self._worker, self._keys, answers, options)
            rung = await producer.collect(self._gateway, self._keys, [], Bell(self._name, self._batch))
            if rung.request_ids:
                await producer.collect(self._gateway, self._keys, rung.request_ids)
            self.num_done += len(rung.request_ids)


async def measure(servers: Sequence[LocalRedis], batch: int) -> Measured:
    """Runs PAIRS pairs on each server, and returns what they have done in WINDOW_S."""
    connections = [QueueConnections(QueueSettings(redis_url=each.url), "replay", "replay") for each in servers]
    pairs = [_Pair(each, number, batch) for each in connections for number in range(PAIRS)]
    running = [asyncio.create_task(each.run()) for each in pairs]
    try:
        await asyncio.sleep(WARMUP_S)
        before, done_before, began = _cpu_s(servers), sum(each.num_done for each in pairs), time.monotonic()
        await asyncio.wait(running, timeout=WINDOW_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in running:
            if task.done():
                task.result()
        num_done = sum(each.num_done for each in pairs) - done_before
        seconds, cpu_s = time.monotonic() - began, _cpu_s(servers) - before
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for each in connections:
            await each.close()
    return Measured(num_done / seconds, 1e6 * cpu_s / num_done)


def _cpu_s(servers: Sequence[LocalRedis]) -> float:
    times = [psutil.Process(each.pid).cpu_times() for each in servers]
    return sum(each.user + each.system for each in times)


def main(
    servers: Annotated[str, typer.Option(help="Numbers of servers, separated by commas.")] = "1,2,3",
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Requests in one call of a script.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, in each of which all numbers have a turn.")] = 5,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Only show that it works: change no document.")] = False,
) -> None:
    """Measures each number of servers in turns, and writes the table of the documents."""
    numbers, run_start, rows = [int(each) for each in servers.split(",")], start_run(), []
    with ExitStack() as stack:
        running = [stack.enter_context(LocalRedis()) for _ in range(max(numbers))]
        for turn in range(1, rounds + 1):
            for number in numbers:
                measured = uvloop.run(measure(running[:number], batch))
                rows.append(Row(BLOCK, {"servers": number}, asdict(measured)))
                sys.stderr.write(f"round {turn} of {rounds}: {number} servers, {measured.redis_us:.1f} µs a request\n")
    publish(Publication(BLOCK, table, quick), run_start, rounds, rows, batch=batch)


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown, with what servers with a core each would do, and how much that is for each."""
    heads = ("servers", "requests/s measured", "Redis µs per request", "requests/s with a core each", "per server")
    rows, one_us = [], folded[0]["figures"]["redis_us"]["median"]
    for row in folded:
        number, redis_us = row["of"]["servers"], row["figures"]["redis_us"]["median"]
        done = row["figures"]["requests_per_s"]["median"]
        calculated, growth = f"{number * 1e6 / redis_us:,.0f}", f"{one_us / redis_us:.2f}"
        rows.append((str(number), f"{done:,.0f}", f"{redis_us:.1f}", calculated, growth))
    return markdown(heads, rows)


if __name__ == "__main__":
    typer.run(main)
