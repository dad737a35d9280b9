"""The setting `results_payload` of a gateway says what the results stream has of the jobs that it creates."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import redis

from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
ECHO = "tests.integration.functions.function_models:Echo"
ALWAYS = {"id", "status", "n", "done", "failed", "op", "owner"}
LINK, OUTPUTS, VECTORS = {"result_url"}, {"outputs", "errors"}, {"embeddings", "dim", "errors"}


def sees_worker(gateway: GatewayProcess) -> bool:
    """Whether a gateway is ready."""
    return gateway.missing() == []


def payload_of(cluster: GatewayCluster, gateway: GatewayProcess, body: object) -> set[str]:
    """Runs a job to its end; returns the names of the fields that its entry in the stream has beside those of all."""
    client = JobClient(gateway)
    job = client.wait_until_ended(client.job_of(client.post(body)))
    assert job["status"] == "done"
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client_of_redis:
        [(_, fields)] = client_of_redis.xrevrange(cluster.keys.results, count=1)
    names = {name.decode() for name in fields}
    assert job["id"].endswith(fields[b"id"].decode())
    assert names >= ALWAYS
    return names - ALWAYS


@pytest.mark.parametrize(
    ("model", "body", "auto", "inline"),
    [("null", {"texts": ["a", "b"]}, LINK, VECTORS), (ECHO, {"inputs": [1, "b"]}, OUTPUTS, OUTPUTS)],
    ids=["texts", "function"],
)
async def test_a_gateways_setting_decides_what_is_in_the_stream(
    cluster: GatewayCluster, model: str, body: object, auto: set[str], inline: set[str]
) -> None:
    """With none there is nothing, by default outputs or a link to vectors; max_inline_bytes bounds what is inline."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    await cluster.start_worker(model)
    for settings, expected in (
        ({"results_payload": "none"}, set[str]()),
        ({"results_payload": "inline"}, inline),
        ({"results_payload": "auto"}, auto),
        ({}, auto),
        ({"results_payload": "inline", "max_inline_bytes": 1}, LINK),
    ):
        gateway = await cluster.start_gateway(**settings)
        await wait_until(partial(sees_worker, gateway), "the gateway sees the worker")
        assert payload_of(cluster, gateway, body) == expected, settings
