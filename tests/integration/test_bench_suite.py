"""The benchmarks of the repository against real processes, as short as wrk allows."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from pathlib import Path

import pytest

from bench import null_model
from bench.cluster import ROLES
from bench.gateway_overhead import http_only_server
from bench.rounds import Round
from bench.step import Extent, StepContext
from bench.wrk import run, write_mix
from tests import plain_http

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk, the load generator of make bench"),
]
BRIEF = Extent(repetitions=1, warmup_s=0.0, window_s=1.5)
SLOW_EVERY = 10
SLOW_S = 0.1


@pytest.mark.long
def test_the_null_model_gives_plausible_figures(tmp_path: Path) -> None:
    """No request fails, every process uses CPU, and Redis executes commands for each request."""
    shown: list[str] = []
    rows = null_model.run(StepContext(BRIEF, tmp_path, Round(0, 1), shown.append), gateways=2, clients=(1, 16))
    assert [row.of["clients"] for row in rows] == [1, 16]
    assert len(shown) == 2
    for row in rows:
        figures = row.figures
        assert figures["requests_per_s"] > 5
        assert figures["errors"] == 0
        assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"] <= figures["max_ms"]
        assert all(figures[f"cpu_us.{role}"] > 0 for role in ROLES)
        assert figures["redis_commands"] > 1
        assert figures["redis_in_bytes"] > 100
    assert rows[1].figures["requests_per_s"] > rows[0].figures["requests_per_s"]


async def test_latencies_are_those_of_the_answers(tmp_path: Path) -> None:
    """Every tenth answer to the only client is slow; wrk's uncorrected percentiles would count half of them as slow."""
    turn = itertools.count()
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                if next(turn) % SLOW_EVERY == 0:
                    await asyncio.sleep(SLOW_S)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        served.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        load = await asyncio.to_thread(run, url, write_mix("short", tmp_path), clients=1, seconds=1)
        await served.wait()
    assert load.errors == 0
    assert load.requests <= next(turn) <= load.requests + 1
    assert load.p50_ms < SLOW_S * 1000 / 3
    assert load.p95_ms >= SLOW_S * 1000


def test_an_http_only_gateway_answers_like_a_gateway() -> None:
    """The answer has a vector and the headers of a gateway, without a queue."""
    with http_only_server() as served:
        answer = plain_http.post(served.url, json={"text": "anything"})
    assert answer.status_code == 200
    assert len(answer.json()["embedding"]) == 384
    assert "x-batch-size" in answer.headers
