"""`make bench-console`: what viewers of the console cost a gateway, and the latency of requests beside them.

python -m bench.console [--quick] [--viewers 50] [--rate 500] [--rounds 5]

One cluster with the model `null` is measured without viewers, with viewers of another cluster, and with its own
viewers, in turns: first idle, then with an open loop. A viewer asks for all that the page asks for, as often as the
page does. The viewers run in this process, and both clusters on this machine: on few cores, viewers delay requests by
the CPU that they take. Viewers of the other cluster take it too, so the difference between the two is the gateway's.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any, Self

import typer
import uvloop

from bench import redbatch_bench
from bench.cluster import Cluster, ClusterError, Shape, cluster
from bench.cost import Processes, snapshot
from bench.failures import FAILURES, reason
from bench.figures import Row
from bench.publication import Publication, publish, start_run
from bench.rounds import Round
from bench.step import ERRORS
from bench.tables import format_median, format_spread, markdown
from redbatch.bench.answers import HTTP_OK, Answer
from redbatch.bench.connection import CONNECTION_LOST, Connection
from redbatch.bench.connector import Connector, describe_connect_error
from redbatch.bench.target import parse_target
from redbatch.up.local_redis import find_server

BLOCK = "console"
STATE_PATH = "/console/state"
POLL_S, MIN_WAIT_S, SPREAD_S = 1.0, 0.5, 0.5
"""As in console.js: a second after the gateway's last read of Redis, but not sooner than half a second; spread."""

PANELS_S = {"history": 2.0, "leases": 2.0, "tenants": 5.0}
"""How often the page asks for its panels, by the end of their paths."""

TIMEOUT_S = 10.0
SETTLE_S, LEAD_S = 2.0, 1.0
GATEWAY = "gateway"
NONE, OTHER, OWN = PLACES = ("none", "another cluster", "this one")
"""What the viewers look at."""

IDLE, LOADED, POLLS = "idle_ms_per_s", "loaded_ms_per_s", "polls_per_s"
P50, P99 = "p50_ms", "p99_ms"


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of rounds, and the seconds of the idle window and of the load."""

    rounds: int = 5
    idle_s: float = 5.0
    load_s: float = 8.0


QUICK = Extent(1, 1.0, 2.0)


def wait_s(age_s: float) -> float:
    """Returns when a viewer asks again, in seconds, after an answer with a state of this age."""
    return max(MIN_WAIT_S, POLL_S - age_s) + random.uniform(0, SPREAD_S)  # noqa: S311 - guards no secret


class Viewers:
    """Polls a gateway in a thread, as open pages do; `num_polls` counts the answers.

    Args:
        url: of the gateway.
        number: of the viewers.
    """

    def __init__(self, url: str, number: int) -> None:
        self._target, self._number = parse_target(url), number
        self._stop = asyncio.Event()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._error = ""
        self.num_polls = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def check(self) -> None:
        """Raises ClusterError: a viewer got no state."""
        if self._error:
            raise ClusterError(f"a viewer failed: {self._error}")

    def report(self, error: str) -> None:
        """Takes what has ended a poller, unless all are ending."""
        if not self._stop.is_set():
            self._error = error

    async def _run(self) -> None:
        connector = Connector(self._target, keep_bodies=True)
        pollers = [each for _ in range(self._number) for each in self._pollers()]
        try:
            for each in pollers:  # one by one: the accept queue of a server may be short
                await each.start(connector)
        except OSError as error:
            self.report(describe_connect_error(error))
        await self._stop.wait()
        for each in pollers:
            each.stop()

    def _pollers(self) -> Iterator[Poller]:
        """Yields what one page does side by side."""
        yield Poller(self, self._request(STATE_PATH), POLL_S, _wait_after_state_s)
        for name, interval_s in PANELS_S.items():
            yield Poller(self, self._request(f"/console/{name}"), interval_s, partial(_always, interval_s))

    def _request(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: {self._target.authority}\r\n\r\n".encode()


class Poller:
    """Sends one request over one connection, again and again. The handler of what happens there (ConnectionCallbacks).

    Args:
        viewers: counts the answers, and takes an error.
        request: its bytes.
        interval_s: the first request follows within this time.
        next_s: returns when to send it again, in seconds, after an answer with this body.
    """

    def __init__(self, viewers: Viewers, request: bytes, interval_s: float, next_s: Callable[[bytes], float]) -> None:
        self._viewers, self._request, self._interval_s, self._next_s = viewers, request, interval_s, next_s
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, connector: Connector) -> None:
        """Opens the connection. The first request follows soon, as people open a page at different times.

        Raises OSError.
        """
        self._connection = await connector.connect(self)
        offset_s = random.uniform(0, self._interval_s)  # noqa: S311 - guards no secret
        asyncio.get_running_loop().call_later(offset_s, self._send, self._connection)

    def stop(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.abort(CONNECTION_LOST)

    def on_answer(self, connection: Connection, answer: Answer) -> None:
        """Counts an answer; the next request follows later."""
        self._cancel_timer()
        if answer.status != HTTP_OK or connection.closed:
            self._viewers.report(f"status {answer.status}, connection {'closed' if connection.closed else 'open'}")
            return
        self._viewers.num_polls += 1
        asyncio.get_running_loop().call_later(self._next_s(answer.body), self._send, connection)

    def on_failure(self, _connection: Connection, code: str) -> None:
        """Reports that the gateway has closed the connection instead of an answer."""
        self._cancel_timer()
        self._viewers.report(code)

    def on_close(self, _connection: Connection) -> None:
        """Reports that the gateway has closed the connection between requests."""
        self._viewers.report(CONNECTION_LOST)

    def _send(self, connection: Connection) -> None:
        if not connection.closed:
            self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, connection.abort, "timeout")
            connection.send(self._request, time.monotonic())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _wait_after_state_s(body: bytes) -> float:
    return wait_s(json.loads(body)["age_s"])


def _always(interval_s: float, _body: bytes) -> float:
    return interval_s


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
    viewers: Annotated[int, typer.Option(min=1, help="Pages that are open at once.")] = 50,
    rate: Annotated[float, typer.Option(min=1, help="Requests per second.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds; the table has the medians.")] = Extent().rounds,
) -> None:
    """Measures, and writes the table."""
    run_start = start_run()
    extent = QUICK if quick else Extent(rounds=rounds)
    try:
        find_server()
        rows = list(measure_all(extent, viewers, rate))
    except FAILURES as error:
        sys.exit(f"bench-console: {reason(error)}")
    publish(Publication(BLOCK, table, quick), run_start, extent.rounds, rows)


def measure_all(extent: Extent, viewers: int, rate: float) -> Iterator[Row]:
    """Yields a row for each of PLACES in each round. Raises like `measure`."""
    with cluster(Shape("null")) as running, cluster(Shape("null")) as other:
        processes = running.processes()
        for number in range(extent.rounds):
            for place in Round(number, extent.rounds).rotate(PLACES):
                print(f"round {number + 1} of {extent.rounds}: viewers of {place}", flush=True)
                seen = other if place == OTHER else running
                watching = Viewers(seen.url.removesuffix("/embed"), 0 if place == NONE else viewers)
                values = measure(running, processes, extent, watching, rate)
                yield Row(BLOCK, {"viewers": viewers, "watched": place, "rate": f"{rate:g}"}, values)


def measure(running: Cluster, processes: Processes, extent: Extent, watching: Viewers, rate: float) -> dict[str, float]:
    """Returns the gateway's CPU, idle and under load, and the latency of requests, beside these viewers.

    Raises:
        ClusterError: a request or a viewer failed.
        GeneratorError: `redbatch bench` failed.
    """
    load = ("--rate", f"{rate:g}", "--duration", f"{extent.load_s:g}s", "--warmup", f"{LEAD_S:g}s", "--mix", "short")
    with watching:
        time.sleep(SETTLE_S)
        with _window(running, processes, watching) as idle:
            time.sleep(extent.idle_s)
        with _window(running, processes, watching) as loaded:
            measured = redbatch_bench.run(running.url, *load)["measured"]
        watching.check()
    return figures(idle, loaded, measured)


@contextmanager
def _window(running: Cluster, processes: Processes, viewers: Viewers) -> Iterator[dict[str, float]]:
    """Yields a dictionary that has the CPU of the gateway (ms per s) and the polls per second after the block."""
    values: dict[str, float] = {}
    before, polls = snapshot(running, processes), viewers.num_polls
    yield values
    after = snapshot(running, processes)
    seconds = after.at_s - before.at_s
    values["ms_per_s"] = 1_000 * (after.cpu_s[GATEWAY] - before.cpu_s[GATEWAY]) / seconds
    values[POLLS] = (viewers.num_polls - polls) / seconds


def figures(idle: Mapping[str, float], loaded: Mapping[str, float], measured: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of a row. Raises ClusterError: requests failed."""
    errors = sum(measured["errors"].values())
    if errors:
        raise ClusterError(f"{errors} requests failed: choose a lower --rate")
    return {
        POLLS: idle[POLLS],
        IDLE: idle["ms_per_s"],
        LOADED: loaded["ms_per_s"],
        P50: measured["latency_ms"]["p50"],
        P99: measured["latency_ms"]["p99"],
        ERRORS: 0.0,
    }


def cost_of_a_viewer(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line: the CPU that an idle gateway uses for one viewer, by the difference in each round."""
    before, after = _runs(folded, NONE, IDLE), _runs(folded, OWN, IDLE)
    number = folded[0]["of"]["viewers"]
    each = [(b - a) / number for a, b in zip(before, after, strict=True)]
    return (
        f"a viewer costs an idle gateway {median(each):.2f} ms of CPU per second ({min(each):.2f} to {max(each):.2f})"
    )


def change_of_latency(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line: p99 beside viewers of the gateway, over that beside as many of another one, in each round."""
    others, own = _runs(folded, OTHER, P99), _runs(folded, OWN, P99)
    each = [b / a for a, b in zip(others, own, strict=True)]
    return (
        f"with viewers of this gateway, p99 is {median(each):.2f} ({min(each):.2f} to {max(each):.2f}) times that with "
        "viewers of another one"
    )


def _runs(folded: Sequence[Mapping[str, Any]], place: str, name: str) -> list[float]:
    [runs] = [row["figures"][name]["runs"] for row in folded if row["of"]["watched"] == place]
    return list(runs)


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ("viewers", "of", "polls/s", "gateway idle, ms/s", "gateway loaded, ms/s", "p50 ms", "p99 ms")
    rows = [
        [
            "0" if row["of"]["watched"] == NONE else str(row["of"]["viewers"]),
            "–" if row["of"]["watched"] == NONE else row["of"]["watched"],
            format_median(row, POLLS),
            *(format_spread(row, name) for name in (IDLE, LOADED, P50, P99)),
        ]
        for row in sorted(folded, key=lambda row: PLACES.index(row["of"]["watched"]))
    ]
    sentences = f"By these, {cost_of_a_viewer(folded)}; {change_of_latency(folded)}."
    return f"{markdown(heads, rows, left=2)}\n\n{sentences}"


if __name__ == "__main__":
    typer.run(main)
