"""`redbatch bench` as a separate process, against a real gateway or a scripted server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from redbatch.bench.arrivals import poisson, schedule
from tests.bench_server import answer, refusal, serving
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.processes import Processes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]
READY_S = 40.0
VECTOR_BYTES = 1_000  # an answer's 384 numbers are more than that


class Bench:
    """Runs the command in a private folder.

    Args:
        folder: its working directory, in which it writes `run.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self.errors = ""

    async def start(self, url: str, *arguments: str) -> asyncio.subprocess.Process:
        """Starts the command."""
        command = [sys.executable, "-P", "-m", "redbatch", "bench", url, "--out", "run.json", *arguments]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, cwd=self.folder, stdout=pipe, stderr=pipe)

    async def end(self, process: asyncio.subprocess.Process, code: int = 0) -> dict[str, Any]:
        """Waits for its end, asserts the exit code, and returns the JSON that it wrote; {} if it measured nothing."""
        stdout, stderr = await process.communicate()
        self.output, self.errors = stdout.decode(), stderr.decode()
        assert process.returncode == code, self.errors
        path = self.folder / "run.json"
        written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.unlink(missing_ok=True)
        return written

    async def interrupt(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Sends SIGINT, as Ctrl-C does, and waits for its end."""
        process.send_signal(signal.SIGINT)
        return await self.end(process)

    async def run(self, url: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Starts the command and waits for its end."""
        return await self.end(await self.start(url, "--warmup", "100ms", *arguments), code)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Returns the command in an empty folder."""
    return Bench(tmp_path)


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Yields private processes on the test's queue."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def gateway(cluster: GatewayCluster) -> GatewayProcess:
    """Returns a gateway with a null worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=READY_S)
    return gateway


async def test_a_closed_loop_measures_the_cluster(bench: Bench, gateway: GatewayProcess) -> None:
    """Every request gets its vectors; by Little's law, rate times mean latency is the number of clients."""
    written = await bench.run(gateway.url, "--clients", "8", "--duration", "3s", "--check", "--plot", "run.png")
    measured = written["measured"]
    assert measured["errors"] == {}
    assert measured["ok"] == measured["requests"] > 20
    assert measured["requests_per_s"] * measured["latency_ms"]["mean"] / 1000 == pytest.approx(8, rel=0.25)
    assert measured["received_bytes"] > measured["answers_in_window"] * VECTOR_BYTES
    latency_ms = measured["latency_ms"]
    assert 0 < latency_ms["min"] <= latency_ms["p50"] <= latency_ms["p95"] <= latency_ms["p99"] <= latency_ms["max"]
    assert written["generator"]["cpu_us_per_request"] > 0
    assert (bench.folder / "run.png").read_bytes().startswith(b"\x89PNG")
    for expected in ("throughput", "p99", "errors", "late", "the load generator used"):
        assert expected in bench.output


async def test_an_open_loop_sends_at_its_rate(bench: Bench, gateway: GatewayProcess) -> None:
    """Inputs are counted in addition to requests, and the seed determines the number of requests."""
    arguments = ["--rate", "100", "--duration", "1s", "--inputs-per-request", "3", "--mix", "mixed", "--check"]
    written = await bench.run(gateway.url, *arguments, "--seed", "5")
    measured = written["measured"]
    assert measured["ok"] == measured["requests"] == pytest.approx(100, abs=40)
    assert measured["inputs_per_s"] == pytest.approx(3 * measured["requests_per_s"])
    again = await bench.run(gateway.url, *arguments, "--seed", "5", "--json")
    assert again["measured"]["requests"] == measured["requests"]
    assert json.loads(bench.output) == again


async def test_refusals_are_counted_by_code(bench: Bench, cluster: GatewayCluster) -> None:
    """Without a worker, a gateway refuses all requests: the run continues to its end, and reports no good answer."""
    gateway = await cluster.start_gateway()
    measured = (await bench.run(gateway.url, "--clients", "2", "--requests", "30", code=1))["measured"]
    assert (measured["ok"], measured["errors"], measured["requests_per_s"]) == (0, {"no_worker": 30}, 0)
    assert measured["latency_ms"]["p50"] is None
    assert "no_worker 30" in bench.output
    assert "first error" in bench.output
    assert "503 no_worker: " in bench.output
    assert bench.errors.endswith("redbatch: none of 30 requests got a good answer\n")


async def test_errors_of_the_warmup_are_in_the_result(bench: Bench) -> None:
    """They are in no other figure, and the progress does not count them either."""
    async with serving(lambda n: refusal("overloaded") if n == 1 else answer()) as server:
        arguments = ["--clients", "1", "--warmup", "1s", "--duration", "6s", "--body", "{}"]
        written = await bench.run(server.url, *arguments)
    assert (written["measured"]["errors"], written["warmup"]["errors"]) == ({}, {"overloaded": 1})
    assert re.search(r"warmup +1 of [\d,]+ requests failed: overloaded 1\n", bench.output)
    assert re.search(r"[56] s: [\d,]+ requests, [\d,]+ requests/s\n", bench.errors)


async def test_texts_and_headers_reach_the_server(bench: Bench, gateway: GatewayProcess) -> None:
    """A too long text is refused with its own code and closes the connection; an invalid header is refused too."""
    (bench.folder / "texts.txt").write_text("short\n" + "long " * 40_000 + "\n", encoding="utf-8")
    arguments = ["--clients", "2", "--requests", "20", "--texts", "texts.txt"]
    measured = (await bench.run(gateway.url, *arguments))["measured"]
    assert sum(measured["errors"].values()) == measured["errors"]["too_large"]
    assert 5 <= measured["errors"]["too_large"] <= 15
    assert measured["ok"] + measured["errors"]["too_large"] == 20
    assert await bench.run(gateway.url, "--requests", "5", "--header", "X-Timeout-Ms: soon", code=1) == {}
    assert "X-Timeout-Ms" in bench.errors


@pytest.mark.parametrize(
    ("path", "body", "inputs"),
    [
        ("/v1/embeddings", '{"model": "null", "input": "{texts}", "encoding_format": "base64"}', 3),
        ("/embed", '{"inputs": "query: {text}"}', 1),
        ("/similarity", '{"inputs": {"source_sentence": "{text}", "sentences": "{texts}"}}', 3),
        ("/rerank", '{"query": "{text}", "texts": "{texts}"}', 3),
    ],
)
async def test_any_route_takes_a_body_of_the_user(
    path: str, body: str, inputs: int, bench: Bench, gateway: GatewayProcess
) -> None:
    """The routes of OpenAI and TEI answer it; inputs are counted as the lists of the body have them."""
    arguments = ["--requests", "20", "--clients", "2", "--inputs-per-request", str(inputs)]
    written = await bench.run(gateway.url, "--path", path, "--body", body, *arguments)
    measured = written["measured"]
    assert (measured["ok"], measured["errors"], written["first_error"]) == (20, {}, None)
    assert measured["inputs_per_s"] == pytest.approx(inputs * measured["requests_per_s"])


async def test_a_body_that_the_route_refuses_is_explained(bench: Bench, gateway: GatewayProcess) -> None:
    """The server's own message is shown, as it tells what to change in the body; nothing is measured."""
    (bench.folder / "body.json").write_text('{"words": "{text}"}', encoding="utf-8")
    assert await bench.run(gateway.url, "--body", "@body.json", "--clients", "1", code=1) == {}
    assert "400 invalid_request: words: there is no such field; " in bench.errors


async def test_another_route_needs_its_bodies(bench: Bench, gateway: GatewayProcess, cluster: GatewayCluster) -> None:
    """Without --body the bodies are those of /embed: the message shows one that the route takes."""
    arguments = ["--path", "/v1/embeddings", "--inputs-per-request", "4"]
    assert await bench.run(gateway.url, *arguments, code=1) == {}
    advice = re.search("the bodies were those of /embed: give others, such as --body '(.*)' for OpenAI's", bench.errors)
    assert advice is not None
    written = await bench.run(
        gateway.url, *arguments, "--body", advice[1].replace("NAME", cluster.queue), "--requests", "9"
    )
    assert written["measured"]["ok"] == 9


async def test_a_function_needs_its_route(bench: Bench, cluster: GatewayCluster) -> None:
    """Where a function is served, texts on /embed are refused: the message says what to give instead."""
    cluster.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    gateway = await cluster.start_gateway()
    await cluster.start_worker("tests.integration.functions.function_models:Echo")
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=READY_S)
    assert await bench.run(gateway.url, code=1) == {}
    assert "Send the request to POST /predict; for a function, give its route: --path /predict --body " in bench.errors
    written = await bench.run(gateway.url, "--path", "/predict", "--body", '{"input": "{number}"}', "--requests", "9")
    assert written["measured"]["ok"] == 9


async def test_ctrl_c_prints_the_results_so_far(bench: Bench) -> None:
    """The exit code is 0, with table and file; a request in flight is not an error."""
    async with serving(lambda n: answer() if n <= 50 else None) as server:
        process = await bench.start(server.url, "--clients", "2", "--duration", "1h", "--warmup", "0s")
        await wait_until(lambda: server.requests == 52, "no further answer will come", timeout_s=READY_S)
        written = await bench.interrupt(process)
    measured = written["measured"]
    assert (measured["requests"], measured["ok"], measured["errors"]) == (50, 50, {})
    assert measured["window_s"] < READY_S
    assert (written["interrupted"], written["unanswered"]) == (True, 2)
    assert "ended by Ctrl-C: 2 in flight do not count" in bench.output


async def test_ctrl_c_counts_requests_that_were_due(bench: Bench) -> None:
    """A due request that an open loop could not send is an error; requests in flight are counted separately."""
    arguments = ["--rate", "1000", "--clients", "2", "--duration", "1h", "--warmup", "0s", "--seed", "1"]
    async with serving(lambda n: answer() if n <= 20 else None) as server:
        process = await bench.start(server.url, *arguments)
        await wait_until(lambda: server.requests == 22, "no further answer will come", timeout_s=READY_S)
        until = time.monotonic() + 0.3
        await wait_until(lambda: time.monotonic() > until, "more is due")
        written = await bench.interrupt(process)
    measured = written["measured"]
    due = len(list(schedule(poisson(1_000, Random(1)), 0.0, measured["window_s"], None)))
    assert (measured["ok"], written["unanswered"], list(measured["errors"])) == (20, 2, ["never_sent"])
    assert due - 122 <= measured["errors"]["never_sent"] <= due - 22  # some become due while the run ends
