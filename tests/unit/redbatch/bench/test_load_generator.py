"""The load itself, against a server in the same event loop."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from redbatch.bench import load_generator
from redbatch.bench.arrivals import poisson, schedule
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import LoadPlan
from redbatch.bench.open_loop import OpenLoop
from redbatch.bench.precise_timer import PreciseTimer
from redbatch.bench.run import CannotConnectError, RunResult, RunSpec, measure
from redbatch.bench.settings import BenchSettings
from redbatch.bench.summary import Summary
from redbatch.bench.target import encode_body, encode_requests, parse_target
from tests.bench_server import answer, refusal, serving
from tests.waiting import wait_until


class Silent:
    """Is shown how far the load is, and shows nobody."""

    def show(self, elapsed_s: float, finished: int, errors: int) -> None:
        """Nothing."""


def run_spec(url: str, *, check: bool = False, **settings: object) -> RunSpec:
    """A run of two different texts, without a warmup."""
    target = parse_target(url)
    return RunSpec(
        BenchSettings.model_validate({"warmup": "0s", **settings}),
        target,
        encode_requests(target, [], [("a",), ("b",)]),
        check,
    )


async def run(url: str, *, check: bool = False, **settings: object) -> RunResult:
    """Runs it to its end."""
    return await measure(run_spec(url, check=check, **settings), Silent())


def summary_of(result: RunResult) -> Summary:
    """The figures, which must be there."""
    assert result.summary is not None
    return result.summary


async def test_a_closed_loop_sends_as_many_as_asked() -> None:
    """Over its clients' connections, each kept, and the texts in turn."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=4, requests=100, check=True)
    summary = summary_of(result)
    assert (server.requests, server.connections) == (100, 4)
    assert (summary.requests, summary.ok, summary.errors) == (100, 100, {})
    assert sorted(server.bodies) == [encode_body(["a"])] * 50 + [encode_body(["b"])] * 50
    assert (result.cost.connections, result.cost.peak_in_flight) == (4, 4)
    assert summary.sent_bytes == 50 * sum(map(len, result.spec.requests))
    assert summary.received_bytes == 100 * len(answer())


async def test_the_warmup_is_not_measured() -> None:
    """It comes on top of the requests that are."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=2, requests=10, warmup="50ms")
    assert summary_of(result).requests == 10
    assert server.requests > 10


async def test_a_closed_loop_measures_as_long_as_asked() -> None:
    """What it counts is what the server saw, and its own cost is told."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, clients=2, duration="200ms")
    summary = summary_of(result)
    assert summary.window_s == 0.2
    assert summary.requests == summary.ok == server.requests
    assert summary.ok_per_s == pytest.approx(server.requests / 0.2, rel=0.1)
    assert result.cost.cpu_us_per_request > 0
    assert result.cost.core_share > 0


async def test_an_open_loop_sends_what_is_due() -> None:
    """As many as asked, at about the rate, whatever the connections."""
    async with serving(lambda _: answer()) as server:
        result = await run(server.url, rate=1_000, requests=200)
    summary = summary_of(result)
    assert (server.requests, summary.requests, summary.ok) == (200, 200, 200)
    assert summary.window_s > 0.1  # later, on a busy machine


async def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    """With one connection and a first answer that takes long, those behind it have waited: none is hidden."""
    begin = asyncio.Event()
    async with serving(lambda _: answer(), begin) as server:
        running = asyncio.create_task(run(server.url, rate=500, duration="300ms", clients=1, timeout_ms=50))
        asyncio.get_running_loop().call_later(0.3, begin.set)
        result = await running
    summary = summary_of(result)
    assert summary.requests == summary.ok == server.requests
    # Due over 300 ms and all answered after it: half of them waited more than half of it.
    assert summary.latency.percentiles_ms[50.0] > 100
    assert summary.late > summary.requests / 2
    assert result.cost.delayed_requests > summary.requests / 2


async def test_what_was_due_is_sent_though_the_generator_was_held_up() -> None:
    """Requests that were due in the last moments are in the figures, with the time by which they came too late."""
    async with serving(lambda _: answer()) as server:
        target = parse_target(server.url)
        plan = LoadPlan(0.0, None, None, max_connections=1, late_after_s=1.0, check_inputs=None)
        open_loop = OpenLoop(
            plan, Connector(target, keep_bodies=False), run_spec(server.url).requests, iter((0.01, 0.02, 0.03))
        )
        await open_loop.connect_all(1)
        open_loop.start()
        while time.monotonic() < open_loop.measure_start_s + 0.05:
            pass  # as a busy machine would
        open_loop.stop()
        await open_loop.ended.wait()
        await open_loop.close()
    assert (len(open_loop.log), server.requests) == (3, 3)
    assert min(open_loop.log.latency_s) >= 0.02
    assert open_loop.peak_lag_s >= 0.04


async def test_errors_are_counted_by_their_codes() -> None:
    """A refusal is no good answer, and the load goes on over the same connection."""
    async with serving(lambda n: refusal("queue_full") if n % 4 == 0 else answer()) as server:
        result = await run(server.url, clients=1, requests=100)
    summary = summary_of(result)
    assert (summary.ok, summary.errors, server.connections) == (75, {"queue_full": 25}, 1)


async def test_a_wrong_answer_is_an_error_when_looked_at() -> None:
    """Only then: looking costs CPU."""
    async with serving(lambda _: answer(body=b"{}")) as server:
        checked = await run(server.url, clients=1, requests=5, check=True)
        unchecked = await run(server.url, clients=1, requests=5)
    assert summary_of(checked).errors == {"wrong_answer": 5}
    assert summary_of(unchecked).ok == 5


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 2_000, "clients": 2}])
async def test_a_server_that_closes_is_connected_to_again(loop: dict[str, Any]) -> None:
    """After `Connection: close` no request is lost."""
    async with serving(lambda _: answer(headers="Connection: close\r\n")) as server:
        result = await run(server.url, requests=20, **loop)
    assert summary_of(result).ok == 20
    assert server.connections >= 20


@pytest.mark.parametrize(("said", "code"), [(b"", "connection_lost"), (b"nonsense\r\n\r\n", "malformed_answer")])
@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 2_000, "clients": 2}])
async def test_a_request_that_gets_no_answer_is_an_error(loop: dict[str, Any], said: bytes, code: str) -> None:
    """The connection is made anew, and the load goes on."""
    async with serving(lambda n: said if n % 2 else answer()) as server:
        result = await run(server.url, requests=20, **loop)
    summary = summary_of(result)
    assert summary.ok + summary.errors[code] == 20
    assert summary.ok >= 5


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 1_000, "clients": 2}])
async def test_a_server_that_never_answers_ends_no_run(loop: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long past the time for an answer the request is given up: an error, and late; those that waited behind it too."""
    monkeypatch.setattr(load_generator, "NO_ANSWER_GRACE_S", 0.0)
    async with serving(lambda _: None) as server:
        result = await run(server.url, requests=4, timeout_ms=50, **loop)
    summary = summary_of(result)
    assert (summary.ok, sum(summary.errors.values()), summary.late) == (0, 4, 4)
    assert summary.errors == ({"no_answer": 2, "never_sent": 2} if "rate" in loop else {"no_answer": 4})


async def test_all_that_was_due_is_in_the_result_of_a_server_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many requests as the schedule has: what no connection was free for was never sent, and is late."""
    monkeypatch.setattr(load_generator, "NO_ANSWER_GRACE_S", 0.0)
    due = len(list(schedule(poisson(1_000, Random(1)), 0.0, 0.15, None)))
    async with serving(lambda n: answer() if n <= 20 else None) as server:
        result = await run(server.url, rate=1_000, duration="150ms", clients=2, timeout_ms=300)
    summary = summary_of(result)
    assert summary.requests == due > 100
    assert summary.ok == 20
    assert summary.errors == {"never_sent": due - 22, "no_answer": 2}
    assert summary.late >= due - 20


@pytest.mark.parametrize("loop", [{"clients": 2}, {"rate": 500, "clients": 2}])
async def test_a_server_that_goes_away_is_an_error_each_time(loop: dict[str, Any]) -> None:
    """What it could not take is counted, and the run ends when it should."""
    async with serving(lambda _: answer(headers="Connection: close\r\n")) as server:
        running = asyncio.create_task(run(server.url, duration="500ms", **loop))
        await wait_until(lambda: server.requests > 3, "it serves")
    summary = summary_of(await running)
    assert summary.ok > 3
    assert summary.errors["connect_failed"] > 0
    assert summary.requests == summary.ok + sum(summary.errors.values())


async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    """Nothing is measured."""
    async with serving(lambda _: answer()) as server:
        url = server.url
    with pytest.raises(CannotConnectError, match=r"[Rr]efused"):
        await run(url, clients=3)


async def test_an_alarm_rings_when_it_should() -> None:
    """Not before its time, again when it is set again, and at once for a time that has passed."""
    rung: list[float] = []
    alarm = PreciseTimer(lambda: rung.append(time.monotonic()))
    at_s = time.monotonic() + 0.01
    alarm.set(at_s)
    await wait_until(lambda: len(rung) == 1, "it has rung")
    assert rung[0] >= at_s
    alarm.set(at_s)
    await wait_until(lambda: len(rung) == 2, "it has rung again")
    alarm.close()
