"""All attacks on the memory of a gateway at once (F21): it stays below the maximum that docs/settings.md states."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest

from api.memory_bounds import max_memory_bytes
from api.settings import GatewaySettings
from shared import api_keys
from shared.connection import QueueConnections
from shared.settings import QueueSettings
from tests.chaos.attack import p99_of, probe_livez
from tests.chaos.scenario import Scenario, all_correct
from tests.chaos.test_slow_readers import TEXTS, connect_unread, wait_until_cached
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import Way
from tests.unit.api.parse_peak import peak_bytes

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive, pytest.mark.leaves_anything]

MIB = 2**20
BOUNDS = {
    "max_connections": 1_000,
    "max_heads_bytes": 8 * MIB,
    "max_body_bytes": 2 * MIB,
    "max_v1_body_bytes": 8 * MIB,
    "max_predict_body_bytes": 8 * MIB,
    "max_bodies_bytes": 32 * MIB,
    "max_in_flight_bytes": 32 * MIB,
    "max_unsent_bytes": 32 * MIB,
    "max_connection_unsent_bytes": 32 * MIB,
    "cache_bytes": 50_000_000,
}
"""Of the gateway: an eighth of the defaults and less, so that each attack alone exceeds the maximum without them."""

ATTACK_S = 25.0
BODY = 8 * MIB - 64
HELD_BYTES = 30
"""The last bytes of a slow body come one each second."""

NUM_SILENT, NUM_UNREAD = 250, 350
STRANGER, SILENT = "127.0.0.2", "127.0.0.3"
MAX_P99_MS = 1_000.0
"""Generous: the attackers take most of the machine. A gateway that a single attack blocks would take longer."""

Attack = Callable[[], Awaitable[object]]


def request(path: bytes, key: str, body: bytes, content_type: bytes = b"application/json") -> bytes:
    """Returns a request with an API key."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nX-Api-Key: %b\r\nContent-Type: %b" % (path, key.encode(), content_type)
    return b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


async def pieces(data: bytes, *, pause_s: float = 0.0, hold: int = 0) -> AsyncIterator[bytes]:
    """Yields pieces of 64 KiB, all but the last `hold` bytes; with `hold` these follow one by one, each second."""
    for start in range(0, len(data) - hold, 65_536):
        yield data[start : min(start + 65_536, len(data) - hold)]
        await asyncio.sleep(pause_s)
    for at in range(hold):
        yield data[len(data) - hold + at :][:1]
        await asyncio.sleep(1)


async def endless_head(way: Way) -> None:
    """A value without an end."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"GET / HTTP/1.1\r\nHost: x\r\na: "
        for _ in range(16):
            yield b"x" * 16_384
            await asyncio.sleep(0)

    await way.exchange(parts(), STRANGER)


async def send(way: Way, sent: bytes, hold: int = 0) -> None:
    """Sends a request, whose last bytes come one by one."""
    await way.exchange(pieces(sent, hold=hold))


def attacks(way: Way, key: str) -> Iterator[Attack]:
    """Yields the clients; each repeats its attack."""
    wide = b'{"model": "minilm", "input": ["' + "\N{GRINNING FACE}".encode() + b"a" * (BODY - 100) + b'"]}'
    numbers = b'{"model": "minilm", "input": [[1' + b",12345678901234" * (BODY // 15 - 10) + b"]]}"
    inputs = json.dumps({"model": "slow", "inputs": ["x" * 3_900_000] * 2}).encode()
    lines = b'"%b"\n' % (b"x" * 100_000) * 80
    yield from [partial(send, way, request(b"/v1/embeddings", key, wide))] * 4
    yield from [partial(send, way, request(b"/v1/embeddings", key, numbers))] * 4
    yield from [partial(send, way, request(b"/v1/embeddings", key, wide), HELD_BYTES)] * 200
    yield from [partial(send, way, request(b"/predict", key, inputs))] * 30
    yield from [partial(send, way, request(b"/jobs", key, lines, b"application/x-ndjson"), HELD_BYTES)] * 20
    yield from [partial(endless_head, way)] * 100


async def repeat(attack: Attack, until: float) -> int:
    """Attacks until then; returns how often. A connection that the gateway closes is no end of it."""
    times = 0
    while time.monotonic() < until:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await attack()
        times += 1
        await asyncio.sleep(0.01)
    return times


def connect_silently(gateway: GatewayProcess, stack: contextlib.ExitStack, number: int) -> None:
    """Opens connections on which half a head arrives."""
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: %b\r\n" % (at, b"v" * 30) for at in range(98))
    for _ in range(number):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 10, (SILENT, 0)))
        with contextlib.suppress(OSError):
            connection.sendall(head)


async def start_gateway(scenario: Scenario, secrets: list[str]) -> GatewayProcess:
    """Starts the gateway, its workers, and two tenants, and adds their keys to a list. Texts are cached."""
    queue = QueueConnections(QueueSettings(redis_url=scenario.cluster.redis_url), "any", "test")
    for _ in range(2):
        key, secret = api_keys.new_key(("embed", "jobs"))
        await api_keys.add(queue.connection("keys"), key)
        secrets.append(secret)
    await queue.close()
    gateway = await scenario.cluster.start_gateway(auth="on", all_queues=True, root_path="/redbatch", **BOUNDS)
    scenario.gateways.append(gateway)
    await scenario.start_worker("null", max_batch_size=256, claim_window=1_024)
    await scenario.start_worker("tests.chaos.slow_function:Slow", queue="slow")
    await scenario.wait_until_worker_seen()
    await wait_until_cached(gateway, x_api_key=secrets[0])
    return gateway


@pytest.mark.timeout(180)
async def test_all_attacks(own_scenario: Scenario) -> None:
    """F21: heads, silence, bodies, numbers, inputs, lines and unread answers, all at once; others lose nothing."""
    scenario, secrets = own_scenario, list[str]()
    gateway = await start_gateway(scenario, secrets)
    base = peak_bytes(gateway.program.pid)
    cached = request(b"/embed", secrets[0], json.dumps({"texts": TEXTS}).encode())
    attacker, other = (Way(gateway.port, api_key=each) for each in secrets)
    async with scenario.load(clients=4, way=other) as calls, probe_livez(gateway) as latencies_s:
        until = time.monotonic() + ATTACK_S
        with contextlib.ExitStack() as stack:
            running = asyncio.gather(*(repeat(each, until) for each in attacks(attacker, secrets[0])))
            await asyncio.to_thread(connect_silently, gateway, stack, NUM_SILENT)
            for _ in range(NUM_UNREAD):
                stack.enter_context(connect_unread(gateway, cached))
                await asyncio.sleep(ATTACK_S / 2 / NUM_UNREAD)
            times = sum(await running)
    peak, maximum = peak_bytes(gateway.program.pid), max_memory_bytes(GatewaySettings.model_validate(BOUNDS))
    sizes = {name: round(size / 1e6) for name, size in (("base", base), ("peak", peak), ("maximum", maximum))}
    p99_ms = p99_of(latencies_s)
    found = {"attacks": times, "livez_p99_ms": round(p99_ms)} | {f"{name}_mb": size for name, size in sizes.items()}
    verdict = scenario.judge("F21 all attacks at once", calls, **found)
    assert all_correct(verdict)
    assert peak <= maximum
    assert p99_ms <= MAX_P99_MS
