"""Both loops, against a server in the same event loop."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from redbatch.bench import load_generator
from redbatch.bench.answers import Answer
from redbatch.bench.arrivals import poisson, schedule
from redbatch.bench.closed_loop import ClosedLoop
from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import MIN_REFUSALS, LoadPlan
from redbatch.bench.open_loop import OpenLoop
from redbatch.bench.precise_timer import PreciseTimer
from redbatch.bench.request_log import RequestLog
from redbatch.bench.run import CannotConnectError, RunResult, RunSpec, measure
from redbatch.bench.settings import BenchSettings
from redbatch.bench.statistics import Summary, WarmupSummary
from redbatch.bench.target import encode_body, encode_requests, parse_target
from tests.bench_server import answer, refusal, serving
from tests.waiting import wait_until


class NoProgress:
    """A progress display that shows nothing."""

    def show(self, elapsed_s: float, log: RequestLog) -> None:
        """Does nothing."""


def run_spec(url: str, *, check: bool = False, **settings: object) -> RunSpec:
    """Returns the specification of a run of two different texts, without a warmup."""
    target = parse_target(url)
    return RunSpec(
        BenchSettings.model_validate({"warmup": "0s", **settings}),
        target,
        encode_requests(target, [], [("a",), ("b",)]),
        check,
    )


async def run(url: str, *, check: bool = False, **settings: object) -> RunResult:
    """Runs a load to its end."""
    return await measure(run_spec(url, check=check, **settings), NoProgress())


def summary_of(result: RunResult) -> Summary:
    """Returns the figures, which must exist."""
    assert result.summary is not None
    return result.summary


async def test_a_closed_loop_sends_the_given_number_of_requests() -> None:
    """A closed loop sends the given number of requests, over one connection per client, with texts in rotation."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=4, requests=100, check=True)
    summary = summary_of(result)
    assert (server.requests, server.connections) == (100, 4)
    assert (summary.requests, summary.ok, summary.errors) == (100, 100, {})
    assert sorted(server.bodies) == [encode_body(["a"])] * 50 + [encode_body(["b"])] * 50
    assert (result.cost.connections, result.cost.peak_in_flight) == (4, 4)
    assert summary.sent_bytes == 50 * sum(map(len, result.spec.requests))
    assert summary.received_bytes == 100 * len(answer())


async def test_the_first_error_that_is_measured_is_kept() -> None:
    """The first that the server answers: a lost connection has no message to show."""
    answers = {1: b"", 2: refusal("queue_full"), 3: refusal("no_worker")}
    async with serving(lambda n: answers.get(n, answer())) as server:
        result = await run(server.url, clients=1, requests=5)
        assert result.first_error == (503, "queue_full", '{"error": {"code": "queue_full"}}')


def test_an_error_of_the_warmup_is_not_shown() -> None:
    """The figures do not count it either."""
    target = parse_target("http://host")
    plan = LoadPlan(0.0, None, requests=1, max_connections=1, late_after_s=1.0, check_inputs=None)
    generator = ClosedLoop(plan, Connector(target, keep_bodies=False), [b"request"])
    generator.stopped, generator.measure_start_s = True, 10.0
    connection = Connection(generator, keep_bodies=False)
    for start_s, status in ((9.0, 503), (11.0, 429), (12.0, 500)):
        connection.start_s = start_s
        generator.on_answer(connection, Answer(status, b"Sorry.", keep_alive=False))
    assert generator.first_error == (429, "http_429", "Sorry.")


async def test_errors_of_the_warmup_are_counted_apart() -> None:
    """The first request is sent in the warmup."""
    async with serving(lambda n: refusal("queue_full") if n == 1 else answer()) as server:
        result = await run(server.url, clients=1, requests=5, warmup="50ms")
    assert summary_of(result).errors == {}
    assert result.warmup == WarmupSummary(server.requests - 5, {"queue_full": 1})


async def test_the_warmup_is_not_measured() -> None:
    """Requests of the warmup are sent in addition to the measured ones."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=2, requests=10, warmup="50ms")
    assert summary_of(result).requests == 10
    assert server.requests > 10


async def test_a_closed_loop_measures_for_the_given_duration() -> None:
    """A closed loop counts exactly the requests that the server receives, and reports its own cost."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=2, duration="200ms")
    summary = summary_of(result)
    assert summary.window_s == 0.2
    assert summary.requests == summary.ok == server.requests
    assert summary.ok_per_s == pytest.approx(server.requests / 0.2, rel=0.1)
    assert result.cost.cpu_us_per_request > 0
    assert result.cost.core_share > 0


async def test_an_open_loop_sends_all_due_requests() -> None:
    """An open loop sends the given number of requests at about its rate, whatever the connections."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, rate=1_000, requests=200)
    summary = summary_of(result)
    assert (server.requests, summary.requests, summary.ok) == (200, 200, 200)
    assert summary.window_s > 0.1  # more on a busy machine


async def test_latency_in_an_open_loop_counts_from_the_due_time() -> None:
    """If the first answer on the only connection is slow, the latency of later requests includes their wait."""
    begin = asyncio.Event()
    async with serving(lambda _: answer(), begin) as server:
        running = asyncio.create_task(run(server.url, rate=500, duration="300ms", clients=1, timeout_ms=50))
        asyncio.get_running_loop().call_later(0.3, begin.set)
        result = await running
    summary = summary_of(result)
    assert summary.requests == summary.ok == server.requests
    # All are due within 300 ms and answered after it: half of them waited more than half of it.
    assert summary.latency.percentiles_ms[50.0] > 100
    assert summary.late > summary.requests / 2
    assert result.cost.delayed_requests > summary.requests / 2


async def test_due_requests_are_sent_although_the_generator_was_blocked() -> None:
    """Requests that were due in the last moments are in the figures, with the delay by which they were sent."""
    async with serving(lambda _: answer()) as server:
        target = parse_target(server.url)
        plan = LoadPlan(0.0, None, None, max_connections=1, late_after_s=1.0, check_inputs=None)
        open_loop = OpenLoop(
            plan, Connector(target, keep_bodies=False), run_spec(server.url).requests, iter((0.01, 0.02, 0.03))
        )
        await open_loop.connect_all(1)
        open_loop.start()
        while time.monotonic() < open_loop.measure_start_s + 0.05:
            pass  # blocks the loop like a busy machine
        open_loop.stop()
        await open_loop.ended.wait()
        await open_loop.close()
    assert (len(open_loop.log), server.requests) == (3, 3)
    assert min(open_loop.log.latency_s) >= 0.02
    assert open_loop.peak_lag_s >= 0.04


async def test_errors_are_counted_by_their_codes() -> None:
    """A refusal is not a good answer, and the load continues over the same connection."""
    async with serving(lambda n: refusal("queue_full") if n % 4 == 0 else answer()) as server:
        result = await run(server.url, clients=1, requests=100)
    summary = summary_of(result)
    assert (summary.ok, summary.errors, server.connections) == (75, {"queue_full": 25}, 1)


@pytest.mark.parametrize("other", [answer(), refusal("queue_full"), answer(422, b'{"error": {"code": "other"}}'), b""])
async def test_refusals_of_some_requests_do_not_end_the_run(other: bytes) -> None:
    """One text may be wrong where others are not: what is wrong with all is refused with the same code each time."""
    bad_text = answer(422, b'{"error": {"code": "validation"}}')
    async with serving(lambda n: other if n == 2 else bad_text) as server:
        result = await run(server.url, clients=1, requests=40)
    assert summary_of(result).errors["validation"] == 39


async def test_a_run_that_is_shorter_than_the_least_number_of_refusals_is_measured() -> None:
    """Its report shows the first error."""
    async with serving(lambda _: answer(422)) as server:
        result = await run(server.url, clients=2, requests=MIN_REFUSALS - 1)
    assert summary_of(result).errors == {"http_422": MIN_REFUSALS - 1}


async def test_a_wrong_answer_is_an_error_if_checked() -> None:
    """Answers are checked only on request, because it costs CPU."""
    async with serving(lambda _: answer(body=b"{}")) as server:
        checked = await run(server.url, clients=1, requests=5, check=True)
        unchecked = await run(server.url, clients=1, requests=5)
    assert summary_of(checked).errors == {"wrong_answer": 5}
    assert summary_of(unchecked).ok == 5


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 2_000, "clients": 2}])
async def test_a_loop_reconnects_after_the_server_closes(loop: dict[str, Any]) -> None:
    """After `Connection: close` no request is lost."""
    async with serving(lambda _: answer(headers="Connection: close\r\n")) as server:
        result = await run(server.url, requests=20, **loop)
    assert summary_of(result).ok == 20
    assert server.connections >= 20


@pytest.mark.parametrize(("response", "code"), [(b"", "connection_lost"), (b"nonsense\r\n\r\n", "malformed_answer")])
@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 2_000, "clients": 2}])
async def test_a_request_that_gets_no_answer_is_an_error(loop: dict[str, Any], response: bytes, code: str) -> None:
    """A request without a valid answer is an error; the loop reconnects and the load continues."""
    async with serving(lambda n: response if n % 2 else answer()) as server:
        result = await run(server.url, requests=20, **loop)
    summary = summary_of(result)
    assert summary.ok + summary.errors[code] == 20
    assert summary.ok >= 5


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 1_000, "clients": 2}])
async def test_a_server_that_never_answers_does_not_block_the_run(
    loop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests without an answer fail after the timeout and grace, and are late; so do those that wait behind them."""
    monkeypatch.setattr(load_generator, "NO_ANSWER_GRACE_S", 0.0)
    async with serving(lambda _: None) as server:
        result = await run(server.url, requests=4, timeout_ms=300, **loop)
    summary = summary_of(result)
    assert (summary.ok, sum(summary.errors.values()), summary.late) == (0, 4, 4)
    assert summary.errors == ({"no_answer": 2, "never_sent": 2} if "rate" in loop else {"no_answer": 4})


async def test_the_result_of_a_stalled_server_has_all_due_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result has all scheduled requests: those without a free connection count as never sent, and as late."""
    monkeypatch.setattr(load_generator, "NO_ANSWER_GRACE_S", 0.0)
    due = len(list(schedule(poisson(1_000, Random(1)), 0.0, 0.15, None)))
    async with serving(lambda n: answer() if n <= 20 else None) as server:
        result = await run(server.url, rate=1_000, duration="150ms", clients=2, timeout_ms=1_000)
    summary = summary_of(result)
    assert summary.requests == due > 100
    assert summary.ok == 20
    assert summary.errors == {"never_sent": due - 22, "no_answer": 2}
    assert summary.late >= due - 20


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 500, "clients": 2}])
async def test_each_failed_connection_is_an_error(loop: dict[str, Any]) -> None:
    """Failed connections are counted as errors, and the run ends on schedule."""
    async with serving(lambda _: answer(headers="Connection: close\r\n")) as server:
        running = asyncio.create_task(run(server.url, duration="500ms", **loop))
        await wait_until(lambda: server.requests > 3, "it serves")
    summary = summary_of(await running)
    assert summary.ok > 3
    assert summary.errors["connect_failed"] > 0
    assert summary.requests == summary.ok + sum(summary.errors.values())


async def test_an_unreachable_server_fails_the_run_at_once() -> None:
    """If the server cannot be reached, the run fails at once, without a measurement."""
    async with serving(lambda _: answer()) as server:
        url = server.url
    with pytest.raises(CannotConnectError, match=r"[Rr]efused"):
        await run(url, clients=3)


async def test_a_precise_timer_calls_back_at_its_times() -> None:
    """The timer calls back not before its time, again when set again, and at once for a time in the past."""
    calls: list[float] = []
    timer = PreciseTimer(lambda: calls.append(time.monotonic()))
    at_s = time.monotonic() + 0.01
    timer.set(at_s)
    await wait_until(lambda: len(calls) == 1, "it has called back")
    assert calls[0] >= at_s
    timer.set(at_s)
    await wait_until(lambda: len(calls) == 2, "it has called back again")
    timer.close()
