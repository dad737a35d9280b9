"""Tracing of real processes by their settings, with a collector, without one, and without the packages."""

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

IMPORT_RECORDER = Path(__file__).with_name("import_recorder")
READY_S = 20.0
MAX_STOP_S = 10.0
"""Maximum time of a stop, of which the export of the last spans may take shared.process.tracing.STOP_S."""


async def start(separate_cluster: GatewayCluster, tracing: str) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and a worker, and waits until both are ready."""
    gateway, worker = await asyncio.gather(
        separate_cluster.start_gateway(tracing=tracing), separate_cluster.start_worker(tracing=tracing)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=READY_S)
    return gateway, worker


async def test_both_processes_export_their_spans(separate_cluster: GatewayCluster) -> None:
    """Gateway and worker export spans as the standard OTEL variables say; log lines contain the ids of their spans."""
    with Collector() as collector:
        separate_cluster.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        gateway, _ = await start(separate_cluster, "otlp")
        headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "must not be logged"}
        assert has_vectors(gateway.embed({"texts": ["a"]}, **headers), ["a"])
        assert gateway.embed({"texts": []}).status_code == httpx.codes.BAD_REQUEST
        await wait_until(lambda: len(collector.named("POST /embed")) == 2, "the gateway has exported")
        process = f"process {separate_cluster.queue}"
        await wait_until(lambda: bool(collector.named(process)), "the worker has exported")
        (one, served), (_, refused) = collector.named("POST /embed")
        (two, batch), (_, send) = collector.named(process)[0], collector.named(f"send {separate_cluster.queue}")[0]
    assert (one, two) == ("redbatch-gateway", "redbatch-worker")
    assert (send.trace_id, send.parent_span_id) == (served.trace_id, served.span_id)
    assert [(each.trace_id, each.span_id) for each in batch.links] == [(send.trace_id, send.span_id)]
    assert "be logged" not in gateway.program.output
    [line] = gateway.program.log_records("request refused")
    assert (line["trace_id"], line["span_id"]) == (refused.trace_id.hex(), refused.span_id.hex())


@pytest.mark.parametrize("silent", [False, True])
async def test_an_unavailable_collector_fails_no_request(separate_cluster: GatewayCluster, silent: bool) -> None:
    """Requests are answered, spans beyond the buffer are lost, one log line reports it, and the processes stop soon."""
    with Collector(silent=silent) as collector:
        separate_cluster.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url if silent else f"http://127.0.0.1:{free_port()}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
        }
        gateway, worker = await start(separate_cluster, "otlp")
        for number in range(200):
            assert has_vectors(gateway.embed({"texts": [f"text {number}"]}), [f"text {number}"])
        for program in (gateway.program, worker):
            await wait_until(lambda: bool(program.log_records("traces cannot be sent")), "it reports it")  # noqa: B023 - awaited in this iteration
        began = time.monotonic()
        assert [await program.stop() for program in (gateway.program, worker)] == [0, 0]
        assert time.monotonic() - began < MAX_STOP_S
    for program in (gateway.program, worker):
        assert len(program.log_records("traces cannot be sent")) == 1
        assert {line["level"] for line in log_lines(program)} <= {"info", "warning"}


async def recorded_imports(separate_cluster: GatewayCluster, record: Path, tracing: str) -> set[str]:
    """Returns the tracing modules that a gateway, a worker and its engine import until they have answered a request."""
    record.touch()
    separate_cluster.environment = {"PYTHONPATH": str(IMPORT_RECORDER), "IMPORT_RECORD": str(record)}
    gateway, _ = await start(separate_cluster, tracing)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    return set(record.read_text().split())


async def test_without_tracing_no_tracing_module_is_imported(separate_cluster: GatewayCluster, tmp_path: Path) -> None:
    """With tracing off, neither gateway, worker nor engine imports a module that creates spans."""
    assert await recorded_imports(separate_cluster, tmp_path / "imports", "off") == set()


async def test_with_tracing_the_recorded_modules_are_imported(separate_cluster: GatewayCluster, tmp_path: Path) -> None:
    """With tracing on, the modules that the test above records are imported."""
    names = await recorded_imports(separate_cluster, tmp_path / "imports", "otlp")
    assert {
        "api.tracing",
        "gpuworker.tracing",
        "opentelemetry.sdk.trace",
        "shared.process.tracing.tracer_provider",
    } <= names


@pytest.mark.parametrize("module", ["api", "gpuworker"])
async def test_tracing_without_its_packages_ends_the_process(
    separate_cluster: GatewayCluster, tmp_path: Path, module: str
) -> None:
    """The process ends with exit code 2 and one line, which names the setting and the command that installs them."""
    env = separate_cluster.env(tracing="otlp") | {
        "PYTHONPATH": str(IMPORT_RECORDER),
        "IMPORT_RECORD": str(tmp_path / "imports"),
    }
    program = await separate_cluster.processes.start(module, module, env | {"OPENTELEMETRY_MISSING": "1"})
    assert await program.wait_until_ended() == 2
    [line] = program.output.splitlines()
    assert line.startswith("redbatch: --tracing (REDBATCH_TRACING)")
    assert line.endswith("pip install -e '.[tracing]' in the checkout")


async def test_without_tracing_no_traceparent_is_stored(
    separate_cluster: GatewayCluster, raw: redis.asyncio.Redis, fake_heartbeat: None
) -> None:
    """A gateway without tracing stores no traceparent in the entry, even if the client sends one."""
    gateway = await separate_cluster.start_gateway()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees a worker", timeout_s=READY_S)
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "x_timeout_ms": "4000"}
    request = asyncio.create_task(asyncio.to_thread(gateway.embed, {"text": "a"}, **headers))
    lane = Keys(separate_cluster.queue).lanes[0]
    entries: list[Any] = []

    async def has_entry() -> bool:
        entries.extend(await raw.xrange(lane) or [])
        return bool(entries)

    await wait_until(has_entry, "the entry is in the lane")
    assert b"body" in entries[0][1]
    assert b"traceparent" not in entries[0][1]
    assert (await request).status_code == httpx.codes.GATEWAY_TIMEOUT
