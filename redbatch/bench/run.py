"""One run, from the settings to its result."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol

import uvloop

from redbatch.bench.arrivals import ARRIVALS, schedule
from redbatch.bench.closed_loop import ClosedLoop
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import LoadGenerator, LoadPlan
from redbatch.bench.open_loop import OpenLoop
from redbatch.bench.settings import BenchSettings
from redbatch.bench.summary import Summary, summarize
from redbatch.bench.target import Target
from shared.process.listener import raise_open_file_limit

MIN_INITIAL_CONNECTIONS = 8
ASSUMED_LATENCY_S = 0.1
"""An open loop begins with the connections that it needs when an answer takes so long, and opens more when it must."""


class CannotConnectError(Exception):
    """The server cannot be reached at all; the message says why."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run does: to which server, with which requests as bytes."""

    settings: BenchSettings
    target: Target
    requests: Sequence[bytes]
    check: bool


@dataclass(frozen=True, slots=True)
class GeneratorCost:
    """What the load generator itself took while it measured; NaN when nothing was measured."""

    cpu_us_per_request: float
    core_share: float
    connections: int
    most_in_flight: int
    had_to_wait: int
    most_behind_ms: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that came of a run.

    `summary` is None when it was ended before the measuring began; `unanswered` were in flight when Ctrl-C ended it.
    """

    job: RunSpec
    began: datetime
    interrupted: bool
    summary: Summary | None
    cost: GeneratorCost
    unanswered: int = 0


class ProgressDisplay(Protocol):
    """Who is shown how far the load is."""

    def show(self, elapsed_s: float, finished: int, errors: int) -> None:
        """Is called now and then; the time is that since the measuring began, and negative in the warmup."""


PROGRESS_INTERVAL_S = 0.5


def run(job: RunSpec, watcher: ProgressDisplay) -> RunResult:
    """Runs a load to its end, or to Ctrl-C.

    Raises:
        CannotConnectError: not even the first connections could be opened.
    """
    raise_open_file_limit()
    # What is there now lives to the end: the garbage collector need not look at it in the middle of an answer.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measure(job, watcher))
    finally:
        gc.unfreeze()


async def measure(job: RunSpec, watcher: ProgressDisplay) -> RunResult:
    """Runs a load in the event loop that runs. Raises as `run` does."""
    settings = job.settings
    dialer = Connector(job.target, keep_bodies=job.check)
    load = _make_generator(job, dialer)
    began = datetime.now(UTC)
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()

    def interrupt() -> None:
        interrupted.set()
        load.interrupt()

    try:
        try:
            await load.connect(_initial_connections(settings))
        except OSError as error:
            raise CannotConnectError(_describe_error(error)) from None
        loop.add_signal_handler(signal.SIGINT, interrupt)
        load.begin()
        await _wait_until_ended(load, watcher)
        window_s = _window_s(load, interrupted=interrupted.is_set())
    finally:
        await load.close()
        loop.remove_signal_handler(signal.SIGINT)
    summary = summarize(load.record, window_s, settings.late_after_s) if window_s > 0 else None
    return RunResult(job, began, interrupted.is_set(), summary, _generator_cost(load, dialer), load.unanswered)


def _make_generator(job: RunSpec, dialer: Connector) -> LoadGenerator:
    settings = job.settings
    plan = LoadPlan(
        warmup_s=settings.warmup_s,
        duration_s=settings.duration_s,
        requests=settings.requests,
        connections=settings.connections,
        late_after_s=settings.late_after_s,
        check_inputs=settings.inputs_per_request if job.check else None,
    )
    if settings.rate is None:
        return ClosedLoop(plan, dialer, job.requests)
    arrivals = ARRIVALS[settings.arrivals](settings.rate, Random(settings.seed))  # noqa: S311 - no secrets
    due = schedule(arrivals, settings.warmup_s, settings.duration_s, settings.requests)
    return OpenLoop(plan, dialer, job.requests, due)


def _initial_connections(settings: BenchSettings) -> int:
    if settings.rate is None:
        return settings.connections
    return min(settings.connections, max(MIN_INITIAL_CONNECTIONS, math.ceil(settings.rate * ASSUMED_LATENCY_S)))


async def _wait_until_ended(load: LoadGenerator, watcher: ProgressDisplay) -> None:
    ended = asyncio.create_task(load.ended.wait())
    while not ended.done():
        await asyncio.wait([ended], timeout=PROGRESS_INTERVAL_S)
        watcher.show(time.monotonic() - load.start_s, len(load.record), load.record.errors)


def _window_s(load: LoadGenerator, *, interrupted: bool) -> float:
    """Returns how long was measured: as planned, until Ctrl-C, or until the last of so many requests was answered."""
    stopped_s = load.marks[-1].at_s - load.start_s
    if interrupted:
        return stopped_s
    if load.plan.duration_s is not None:
        return load.plan.duration_s
    record = load.record
    rows = zip(record.began_s, record.took_s, strict=True)
    return math.nextafter(max((began_s + took_s for began_s, took_s in rows if began_s >= 0), default=0.0), math.inf)


def _generator_cost(load: LoadGenerator, dialer: Connector) -> GeneratorCost:
    first, last = load.marks[0], load.marks[-1]
    cpu_s, requests, wall_s = last.cpu_s - first.cpu_s, last.finished - first.finished, last.at_s - first.at_s
    waited, behind_s = (load.had_to_wait, load.most_behind_s) if isinstance(load, OpenLoop) else (0, 0.0)
    return GeneratorCost(
        cpu_us_per_request=cpu_s * 1e6 / requests if requests else math.nan,
        core_share=cpu_s / wall_s if wall_s > 0 else math.nan,
        connections=dialer.opened,
        most_in_flight=load.most_in_flight,
        had_to_wait=waited,
        most_behind_ms=behind_s * 1000,
    )


def _describe_error(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the attempt to connect"
    if error.errno is None or isinstance(error, socket.gaierror | ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno)
