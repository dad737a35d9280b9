"""Clients with a key that do not read their answers (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from pathlib import Path

import psutil
import pytest

from tests.chaos.attack import fault_name, measure_growth, memory_of, p99_of, probe_livez, request
from tests.chaos.conftest import NewKey
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import DIRECTLY, HOST, SETTINGS, THROUGH_NGINX, WAYS, Way, open_way
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

CLIENTS, ADDRESS = 80, "127.0.0.2"
TEXTS = [f"cached {number}" for number in range(2_048)]
ATTACK_S = 12.0
MAX_UNSENT_BYTES = {DIRECTLY: 128 * 2**20, THROUGH_NGINX: 32 * 2**20}
"""By way; the default, and less where the sockets between gateway and nginx take most of an answer."""

MAX_GROWTH_MB = 280.0
"""`max_unsent_bytes` is at most 134 MB; beside it are the answers that are being made, and what the allocator keeps."""

MAX_P99_MS = 1_000.0
"""Generous: the encoding of 80 answers of 8 MB, which tenants pay for, delays others by 100 to 500 ms where the machine
is shared. A gateway that waits for a client would take seconds.
"""


def connect_unread(way: Way, request: bytes) -> socket.socket:
    """Opens a connection, and sends on it as much of two requests as it takes at once."""
    connection = socket.create_connection((HOST, way.port), 10, (ADDRESS, 0))
    if way.tls is not None:
        connection = way.tls.wrap_socket(connection, server_hostname=HOST)
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
        connection.send(request * 2)
    return connection


async def wait_until_cached(gateway: GatewayProcess, **headers: str) -> None:
    """Requests the texts until all of them are answered from the cache."""

    async def all_hit() -> bool:
        before = gateway.metric("redbatch_cache_hits_total")
        answer = await asyncio.to_thread(gateway.embed, {"texts": TEXTS}, **headers)
        assert answer.status_code == 200
        return gateway.metric("redbatch_cache_hits_total") == before + len(TEXTS)

    await wait_until(all_hit, "the texts are cached", timeout_s=30)


@pytest.mark.leaves_anything
@pytest.mark.parametrize("way_name", WAYS)
async def test_answers_that_are_not_read(scenario: Scenario, new_key: NewKey, tmp_path: Path, way_name: str) -> None:
    """F21: 80 clients read nothing of cached answers of 8 MB: memory is bounded, and another tenant is answered.

    The nginx of docs/behind-a-proxy.md writes no answer to its disk, so that the gateway has what it does not take.
    """
    attacker, other, unsent = await new_key(), await new_key(), MAX_UNSENT_BYTES[way_name]
    gateway = await scenario.cluster.start_gateway(
        **SETTINGS, cache_bytes=50_000_000, max_unsent_bytes=unsent, max_connection_unsent_bytes=unsent
    )
    scenario.gateways.append(gateway)
    await scenario.start_worker("null", max_batch_size=256, claim_window=1_024)
    await scenario.wait_until_worker_seen()
    await wait_until_cached(gateway, x_api_key=attacker)
    async with (
        open_way(way_name, gateway, tmp_path, other) as way,
        scenario.load(clients=8, way=way) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        sent = request(f"{way.prefix}/embed", attacker, json.dumps({"texts": TEXTS}).encode())
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        with contextlib.ExitStack() as stack:
            async with measure_growth(memory_of(psutil.Process(gateway.program.pid))) as growths_mb:
                for _ in range(CLIENTS):
                    stack.enter_context(await asyncio.to_thread(connect_unread, way, sent))
                await asyncio.sleep(ATTACK_S)
            closed = gateway.metric('redbatch_closed_connections_total{reason="unsent_bytes"}')
    (growth_mb,), p99_ms = growths_mb, p99_of(latencies_s)
    found = {"clients": CLIENTS, "closed": round(closed), "livez_p99_ms": round(p99_ms), "growth_mb": round(growth_mb)}
    verdict = scenario.judge(fault_name("F21 answers that are not read", way_name), calls, **found)
    assert all_correct(verdict)
    assert closed >= 1
    assert growth_mb <= MAX_GROWTH_MB
    assert p99_ms <= MAX_P99_MS
