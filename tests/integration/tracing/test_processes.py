"""Tracing as it is set: real processes, and a real collector, or none."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio

from redbatch.up.local_redis import free_port
from shared.keys import Keys
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, has_vectors, log_lines
from tests.integration.tracing.collector import Collector
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

WATCH = Path(__file__).with_name("import_recorder")
SEEN_S = 20.0
LEFT_S = 10.0
"""Time to leave, of which the last spans may take shared.process.tracing.STOP_S."""


async def start(processes: GatewayCluster, tracing: str) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and a worker, and waits until both are ready."""
    gateway, worker = await asyncio.gather(
        processes.start_gateway(tracing=tracing), processes.start_worker(tracing=tracing)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=SEEN_S)
    return gateway, worker


async def test_a_collector_is_sent_all(processes: GatewayCluster) -> None:
    """Both processes send their spans as the usual variables say, and log lines say of which trace they are."""
    with Collector() as collector:
        processes.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        gateway, _ = await start(processes, "otlp")
        strange = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "what nobody may log"}
        assert has_vectors(gateway.embed({"texts": ["a"]}, **strange), ["a"])
        assert gateway.embed({"texts": []}).status_code == httpx.codes.BAD_REQUEST
        await wait_until(lambda: len(collector.named("POST /embed")) == 2, "the gateway has told")
        process = f"process {processes.queue}"
        await wait_until(lambda: bool(collector.named(process)), "the worker has told")
        (one, served), (_, refused) = collector.named("POST /embed")
        (two, batch), (_, send) = collector.named(process)[0], collector.named(f"send {processes.queue}")[0]
    assert (one, two) == ("redbatch-gateway", "redbatch-worker")
    assert (send.trace_id, send.parent_span_id) == (served.trace_id, served.span_id)
    assert [(each.trace_id, each.span_id) for each in batch.links] == [(send.trace_id, send.span_id)]
    assert "may log" not in gateway.program.output
    [line] = gateway.program.log_records("refused")
    assert (line["trace_id"], line["span_id"]) == (refused.trace_id.hex(), refused.span_id.hex())


@pytest.mark.parametrize("silent", [False, True])
async def test_a_collector_that_is_away_harms_nobody(processes: GatewayCluster, silent: bool) -> None:
    """Requests are answered, what does not fit is lost, one line says so, and the processes leave soon."""
    with Collector(silent=silent) as collector:
        processes.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url if silent else f"http://127.0.0.1:{free_port()}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
        }
        gateway, worker = await start(processes, "otlp")
        for number in range(200):
            assert has_vectors(gateway.embed({"texts": [f"text {number}"]}), [f"text {number}"])
        for program in (gateway.program, worker):
            await wait_until(lambda: bool(program.log_records("traces cannot be sent")), "it says so")  # noqa: B023 - now
        began = time.monotonic()
        assert [await program.stop() for program in (gateway.program, worker)] == [0, 0]
        assert time.monotonic() - began < LEFT_S
    for program in (gateway.program, worker):
        assert len(program.log_records("traces cannot be sent")) == 1
        assert {line["level"] for line in log_lines(program)} <= {"info", "warning"}


async def looked_for(processes: GatewayCluster, into: Path, tracing: str) -> set[str]:
    """Returns what of the modules for traces a gateway, a worker and its engine look for until they have answered."""
    into.touch()
    processes.environment = {"PYTHONPATH": str(WATCH), "WATCH_INTO": str(into)}
    gateway, _ = await start(processes, tracing)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    return set(into.read_text().split())


async def test_off_imports_nothing(processes: GatewayCluster, tmp_path: Path) -> None:
    """Neither a gateway nor a worker nor its engine looks for what makes spans."""
    assert await looked_for(processes, tmp_path / "seen", "off") == set()


async def test_on_imports_what_is_watched(processes: GatewayCluster, tmp_path: Path) -> None:
    """What the test above watches is what tracing takes."""
    found = await looked_for(processes, tmp_path / "seen", "otlp")
    assert {"api.tracing", "gpuworker.tracing", "opentelemetry.sdk.trace", "shared.process.tracing.provider"} <= found


@pytest.mark.parametrize("module", ["api", "gpuworker"])
async def test_without_the_extra_a_line_says_what_is_missing(
    processes: GatewayCluster, tmp_path: Path, module: str
) -> None:
    """Nothing starts then: exit code 2, and what to install."""
    env = processes.env(tracing="otlp") | {"PYTHONPATH": str(WATCH), "WATCH_INTO": str(tmp_path / "seen")}
    program = await processes.processes.start(module, module, env | {"WATCH_MISSING": "1"})
    assert await program.wait_until_ended() == 2
    [line] = program.output.splitlines()
    assert line.startswith("redbatch: --tracing (REDBATCH_TRACING)")
    assert line.endswith("pip install 'redbatch[tracing]'")


async def test_off_passes_nothing_on(processes: GatewayCluster, raw: redis.asyncio.Redis, fake_heartbeat: None) -> None:
    """A client's traceparent ends at a gateway that does not trace."""
    gateway = await processes.start_gateway()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees a worker", timeout_s=SEEN_S)
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "x_timeout_ms": "2000"}
    asking = asyncio.create_task(asyncio.to_thread(gateway.embed, {"text": "a"}, **headers))
    lane = Keys(processes.queue).lanes[0]
    found: list[Any] = []

    async def there() -> bool:
        found.extend(await raw.xrange(lane) or [])
        return bool(found)

    await wait_until(there, "the entry is there")
    assert b"body" in found[0][1]
    assert b"traceparent" not in found[0][1]
    assert (await asking).status_code == httpx.codes.GATEWAY_TIMEOUT
