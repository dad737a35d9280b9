"""The gateway's health routes, documents, metrics and logs."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
import redis.asyncio

from shared.process.tasks import cancel_and_wait
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, log_lines, null_vector
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def test_health_is_ok(served: GatewayProcess) -> None:
    """/health, for people and simple probes, returns exactly {"status": "ok"}."""
    answer = plain_http.get(f"{served.url}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_both_ports_report_the_same_health(served: GatewayProcess, path: str) -> None:
    """The main port and the admin port report the same health."""
    for base in (served.url, served.admin):
        answer = plain_http.get(f"{base}{path}")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_the_openapi_document_describes_only_existing_behavior(served: GatewayProcess) -> None:
    """/docs and /openapi.json exist, list the fields and statuses, and do not contain FastAPI's validation errors."""
    assert plain_http.get(f"{served.url}/docs").status_code == 200
    answer = plain_http.get(f"{served.url}/openapi.json")
    assert answer.status_code == 200
    for word in ("HTTPValidationError", "ValidationError"):
        assert word not in answer.text
    page = answer.json()
    schemas = page["components"]["schemas"]
    with_detail = {name for name, schema in schemas.items() if "detail" in schema.get("properties", {})}
    assert with_detail == {"RerankErrorAnswer"}, "where Jina's clients look for the message of an error"
    embed = page["paths"]["/batch_embed"]["post"]
    assert set(embed["responses"]) == {
        *("200", "202", "400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "500", "503", "504"),
    }
    assert set(page["components"]["schemas"]["EmbedBody"]["properties"]) == {
        *("text", "texts", "timeout_ms", "priority", "on_error", "model"),
        *("prompt_name", "normalize", "dimensions", "truncate", "truncation_direction"),
        *("input_type", "task", "instruction", "long_text", "output_dtype", "return"),
    }
    assert {each["name"] for each in embed["parameters"]} == {
        *("X-Timeout-Ms", "X-Priority", "X-Request-Id", "X-Model", "X-Model-Revision", "X-Tenant"),
        *("Prefer", "Idempotency-Key"),
    }


async def test_only_the_admin_port_has_metrics(served: GatewayProcess) -> None:
    """The admin port serves metrics that count the answers, after these; the public main port has none."""
    answered = 'redbatch_requests_total{route="/embed",status="200"}'
    before = served.metric(answered)
    await asyncio.to_thread(served.embed, {"texts": ["a", "b"]})
    await wait_until(lambda: served.metric(answered) == before + 1, "the answer is counted")
    text = plain_http.get(f"{served.admin}/metrics").text
    assert 'redbatch_redis_up{shard="0"} 1.0' in text
    assert re.search(r'^redbatch_workers\{queue="served-\w+",state="ready"\} 1.0$', text, re.MULTILINE)
    assert plain_http.get(f"{served.url}/metrics").status_code == 404


async def test_metrics_contain_the_age_of_each_lane(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None
) -> None:
    """The age of a bulk entry is not reported for the interactive lane; Redis' round trips are measured."""
    gateway = await cluster.start_gateway()
    age = f'redbatch_queue_oldest_age_seconds{{lane="%s",queue="{cluster.queue}"}}'
    request = asyncio.create_task(gateway.send(client, "a", x_timeout_ms="60000", x_priority="bulk"))
    await wait_until(lambda: gateway.metric(age % "bulk") > 1, "the gateway shows the age of the oldest entry")
    assert gateway.metric(age % "interactive") == 0
    assert gateway.metric("redbatch_redis_round_trip_seconds_count") > 1
    assert gateway.metric("redbatch_redis_memory_bytes") > 0
    assert gateway.metric("redbatch_redis_persistence_failed") == 0
    assert not request.done()
    await cancel_and_wait([request])
    await wait_until(lambda: gateway.metric("redbatch_cancelled_entries_total") == 1, "the entry is removed")


async def test_ids_in_redis_are_random(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """Entries have random ids of 128 bits, so that clients with the same X-Request-Id never share a reply key."""
    gateway = await cluster.start_gateway(requests_per_entry=1)
    request_id = "0123456789abcdef" * 2
    sent = [gateway.send(client, "a", x_request_id=request_id, x_timeout_ms="6000") for _ in range(20)]
    requests = asyncio.gather(*sent)

    async def ids() -> set[bytes]:
        rows: Any = await raw.xrange(cluster.keys.lanes[0])
        return {fields[b"id"] for _, fields in rows}

    async def are_in_queue() -> bool:
        return len(await ids()) == 20

    await wait_until(are_in_queue, "20 entries with 20 ids are in the queue")
    entry_ids = await ids()
    assert request_id.encode() not in entry_ids
    assert all(re.fullmatch(rb"[0-9a-f]{32}", each) for each in entry_ids)
    assert {answer.headers["x-request-id"] for answer in await requests} == {request_id}


async def test_logs_are_json_without_texts_and_vectors(cluster: GatewayCluster) -> None:
    """At level debug, all log lines are JSON and contain no text or vector of served, refused or malformed requests."""
    gateway = await cluster.start_gateway(log_level="debug", max_input_chars=40)
    await cluster.start_worker(log_level="debug")
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    mark = "zqxjv-marker"
    for body in ({"text": mark}, {"texts": [mark, 1]}, {"text": [mark]}, {"text": mark * 9}, {mark: mark}):
        gateway.embed(body, x_request_id="logged-id")
    plain_http.post(f"{gateway.url}/embed", content=b'{"text": "zqxjv-marker')
    plain_http.post(f"{gateway.url}/embed", content=b"zqxjv-marker", headers={"content-type": "text/plain"})
    lines = log_lines(gateway.program)
    assert all({"ts", "level", "msg", "service"} <= set(line) for line in lines)
    assert {line.get("request_id") for line in lines} >= {"logged-id"}
    number = re.escape(str(first_number(mark))[:8])  # with fewer digits, a time may have them
    for program in (each for each in cluster.processes._all):
        assert mark not in program.output
        assert re.search(number, program.output) is None


def first_number(text: str) -> float:
    """Returns the first number of a text's vector."""
    return float(memoryview(null_vector(text)).cast("f")[0])
