"""The rest of what a gateway shows: health, documents, metrics, logs."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
import redis.asyncio

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, log_lines, null_vector
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def test_health_is_exactly_ok(served: GatewayProcess) -> None:
    """For people and simple probes."""
    answer = plain_http.get(f"{served.url}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_both_ports_tell_the_same_health(served: GatewayProcess, path: str) -> None:
    """The main port and the admin port."""
    for base in (served.url, served.admin):
        answer = plain_http.get(f"{base}{path}")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_the_api_documents_itself_without_what_it_does_not_do(served: GatewayProcess) -> None:
    """Both documents are there; FastAPI's own validation errors appear nowhere."""
    assert plain_http.get(f"{served.url}/docs").status_code == 200
    answer = plain_http.get(f"{served.url}/openapi.json")
    assert answer.status_code == 200
    for word in ("HTTPValidationError", "ValidationError", '"detail"'):
        assert word not in answer.text
    page = answer.json()
    embed = page["paths"]["/batch_embed"]["post"]
    assert set(embed["responses"]) == {
        *("200", "400", "401", "403", "404", "408", "413", "415", "429", "500", "503", "504"),
    }
    assert set(page["components"]["schemas"]["EmbedBody"]["properties"]) == {
        *("text", "texts", "timeout_ms", "priority", "on_error", "model"),
    }
    assert {each["name"] for each in embed["parameters"]} == {
        *("X-Timeout-Ms", "X-Priority", "X-Request-Id", "X-Model", "X-Tenant"),
    }


def test_metrics_are_on_the_admin_port_alone(served: GatewayProcess) -> None:
    """They count what was answered; the main port, which the world sees, has none."""
    served.embed({"texts": ["a", "b"]})
    text = plain_http.get(f"{served.admin}/metrics").text
    assert re.search(r'^redbatch_requests_total\{route="/embed",status="200"\} [1-9]', text, re.MULTILINE)
    assert "redbatch_redis_up 1.0" in text
    assert re.search(r'^redbatch_workers\{queue="served-\w+",state="ready"\} 1.0$', text, re.MULTILINE)
    assert plain_http.get(f"{served.url}/metrics").status_code == 404


async def test_metrics_tell_how_long_each_lane_waits(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None
) -> None:
    """What waits in bulk makes nobody believe that the interactive lane does; and Redis' answers are timed."""
    gateway = await cluster.start_gateway()
    age = f'redbatch_queue_oldest_age_seconds{{lane="%s",queue="{cluster.queue}"}}'
    asked = asyncio.create_task(gateway.send(client, "a", x_timeout_ms="4000", x_priority="bulk"))
    await wait_until(lambda: gateway.metric(age % "bulk") > 1, "the gateway shows the age of the oldest entry")
    assert gateway.metric(age % "interactive") == 0
    assert gateway.metric("redbatch_redis_round_trip_seconds_count") > 1
    assert gateway.metric("redbatch_redis_memory_bytes") > 0
    assert gateway.metric("redbatch_redis_persistence_failed") == 0
    assert (await asked).status_code == 504


async def test_the_id_in_redis_is_never_the_clients(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """Two clients with one X-Request-Id must not meet at one reply key: the entries' ids are random, 128 bits."""
    gateway = await cluster.start_gateway()
    given = "0123456789abcdef" * 2
    sent = [gateway.send(client, "a", x_request_id=given, x_timeout_ms="2000") for _ in range(20)]
    asked = asyncio.gather(*sent)

    async def ids() -> set[bytes]:
        rows: Any = await raw.xrange(cluster.keys.lanes[0])
        return {fields[b"id"] for _, fields in rows}

    async def all_there() -> bool:
        return len(await ids()) == 20

    await wait_until(all_there, "20 entries with 20 ids are in the queue")
    found = await ids()
    assert given.encode() not in found
    assert all(re.fullmatch(rb"[0-9a-f]{32}", each) for each in found)
    assert {answer.headers["x-request-id"] for answer in await asked} == {given}


async def test_logs_are_json_and_hold_neither_texts_nor_vectors(cluster: GatewayCluster) -> None:
    """At the most talkative level, with texts that are served, refused and not even JSON."""
    gateway = await cluster.start_gateway(log_level="debug", max_input_chars=40)
    await cluster.start_worker(log_level="debug")
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    mark = "zqxjv-marker"
    for body in ({"text": mark}, {"texts": [mark, 1]}, {"text": [mark]}, {"text": mark * 9}, {mark: mark}):
        gateway.embed(body, x_request_id="seen-in-logs")
    plain_http.post(f"{gateway.url}/embed", content=b'{"text": "zqxjv-marker')
    plain_http.post(f"{gateway.url}/embed", content=b"zqxjv-marker", headers={"content-type": "text/plain"})
    lines = log_lines(gateway.program)
    assert all({"ts", "level", "msg", "service"} <= set(line) for line in lines)
    assert {line.get("request_id") for line in lines} >= {"seen-in-logs"}
    number = re.escape(str(np_first(mark))[:6])
    for program in (each for each in cluster.processes._all):
        assert mark not in program.output
        assert re.search(number, program.output) is None


def np_first(text: str) -> float:
    """Returns the first number of a text's vector."""
    return float(memoryview(null_vector(text)).cast("f")[0])
