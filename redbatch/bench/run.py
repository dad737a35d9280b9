"""One benchmark run, from the settings to the result."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import uvloop

from redbatch.bench.answers import AnsweredError
from redbatch.bench.arrivals import ARRIVALS, schedule
from redbatch.bench.closed_loop import ClosedLoop
from redbatch.bench.connector import Connector, describe_connect_error
from redbatch.bench.load_generator import LoadGenerator, LoadPlan
from redbatch.bench.open_loop import OpenLoop
from redbatch.bench.progress import PROGRESS_INTERVAL_S, ProgressDisplay
from redbatch.bench.settings import BenchSettings
from redbatch.bench.statistics import Summary, WarmupSummary, summarize, summarize_warmup
from redbatch.bench.target import Target
from shared.process.listener import raise_open_file_limit

MIN_INITIAL_CONNECTIONS = 8
ASSUMED_LATENCY_S = 0.1
"""An open loop starts with the connections that it needs at this latency, in seconds; it opens more when needed."""


class CannotConnectError(Exception):
    """The server cannot be reached; the message gives the reason."""


class RefusedError(Exception):
    """The server refuses each request, and so would refuse all; the message gives its answer."""

    def __init__(self, error: AnsweredError) -> None:
        super().__init__(f"{error.status} {error.code}: {error.message}".removesuffix(".").removesuffix(": "))
        self.status = error.status


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Specification of a run: the settings, the server, and the encoded requests.

    If `check` is true, good answers must contain a vector for each input. With `rerank`, the inputs of a request are
    the documents of a query: each is a pair with it.
    """

    settings: BenchSettings
    target: Target
    requests: Sequence[bytes]
    check: bool
    rerank: bool = False


@dataclass(frozen=True, slots=True)
class GeneratorCost:
    """Resources that the load generator used while it measured; NaN if nothing was measured.

    `delayed_requests` waited because no connection was idle and no further one was allowed. `peak_lag_ms` is the
    maximum time by which the load generator itself sent a request too late.
    """

    cpu_us_per_request: float
    core_share: float
    connections: int
    peak_in_flight: int
    delayed_requests: int
    peak_lag_ms: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run. `first_error` is the first one that the server answered while it was measured.

    `summary` is None if the run was interrupted before measuring began. `unanswered` requests were in flight at Ctrl-C.
    """

    spec: RunSpec
    started_at: datetime
    interrupted: bool
    summary: Summary | None
    warmup: WarmupSummary
    cost: GeneratorCost
    unanswered: int = 0
    first_error: AnsweredError | None = None


def run(spec: RunSpec, progress: ProgressDisplay) -> RunResult:
    """Runs a load to its end, or until Ctrl-C.

    Raises:
        CannotConnectError: an initial connection cannot be opened.
        RefusedError: the server refuses each request.
    """
    raise_open_file_limit()
    # Existing objects live until the end: the garbage collector should not scan them while an answer arrives.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measure(spec, progress))
    finally:
        gc.unfreeze()


async def measure(spec: RunSpec, progress: ProgressDisplay) -> RunResult:
    """Runs a load in the current event loop. Raises like `run`."""
    settings = spec.settings
    connector = Connector(spec.target, keep_bodies=spec.check)
    generator = _make_generator(spec, connector)
    started_at = datetime.now(UTC)
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()

    def interrupt() -> None:
        interrupted.set()
        generator.interrupt()

    try:
        try:
            await generator.connect_all(_initial_connections(settings))
        except OSError as error:
            raise CannotConnectError(describe_connect_error(error)) from None
        loop.add_signal_handler(signal.SIGINT, interrupt)
        generator.start()
        await _wait_until_ended(generator, progress)
        window_s = _window_s(generator, interrupted=interrupted.is_set())
    finally:
        await generator.close()
        loop.remove_signal_handler(signal.SIGINT)
    if generator.refusal is not None:
        raise RefusedError(generator.refusal)
    summary = summarize(generator.log, window_s, settings.late_after_s) if window_s > 0 else None
    return RunResult(
        spec,
        started_at,
        interrupted.is_set(),
        summary,
        summarize_warmup(generator.log),
        _generator_cost(generator, connector),
        generator.unanswered,
        generator.first_error,
    )


def _make_generator(spec: RunSpec, connector: Connector) -> LoadGenerator:
    settings = spec.settings
    plan = LoadPlan(
        warmup_s=settings.warmup_s,
        duration_s=settings.duration_s,
        requests=settings.requests,
        max_connections=settings.max_connections,
        late_after_s=settings.late_after_s,
        check_inputs=settings.inputs_per_request if spec.check else None,
    )
    if settings.rate is None:
        return ClosedLoop(plan, connector, spec.requests)
    arrivals = ARRIVALS[settings.arrivals](settings.rate, Random(settings.seed))  # noqa: S311 - no secrets
    due = schedule(arrivals, settings.warmup_s, settings.duration_s, settings.requests)
    return OpenLoop(plan, connector, spec.requests, due)


def _initial_connections(settings: BenchSettings) -> int:
    if settings.rate is None:
        return settings.max_connections
    return min(settings.max_connections, max(MIN_INITIAL_CONNECTIONS, math.ceil(settings.rate * ASSUMED_LATENCY_S)))


async def _wait_until_ended(generator: LoadGenerator, progress: ProgressDisplay) -> None:
    ended = asyncio.create_task(generator.ended.wait())
    while not ended.done():
        await asyncio.wait([ended], timeout=PROGRESS_INTERVAL_S)
        progress.show(time.monotonic() - generator.measure_start_s, generator.log)


def _window_s(generator: LoadGenerator, *, interrupted: bool) -> float:
    """Returns the measured time: as planned, until Ctrl-C, or until the last measured request was answered."""
    stopped_s = generator.snapshots[-1].at_s - generator.measure_start_s
    if interrupted:
        return stopped_s
    if generator.plan.duration_s is not None:
        return generator.plan.duration_s
    log = generator.log
    rows = zip(log.start_s, log.latency_s, strict=True)
    return math.nextafter(
        max((start_s + latency_s for start_s, latency_s in rows if start_s >= 0), default=0.0), math.inf
    )


def _generator_cost(generator: LoadGenerator, connector: Connector) -> GeneratorCost:
    first, last = generator.snapshots[0], generator.snapshots[-1]
    cpu_s, requests, wall_s = last.cpu_s - first.cpu_s, last.num_finished - first.num_finished, last.at_s - first.at_s
    delayed, lag_s = (generator.delayed_requests, generator.peak_lag_s) if isinstance(generator, OpenLoop) else (0, 0.0)
    return GeneratorCost(
        cpu_us_per_request=cpu_s * 1e6 / requests if requests else math.nan,
        core_share=cpu_s / wall_s if wall_s > 0 else math.nan,
        connections=connector.num_opened,
        peak_in_flight=generator.peak_in_flight,
        delayed_requests=delayed,
        peak_lag_ms=lag_s * 1000,
    )
