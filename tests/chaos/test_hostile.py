"""Hostile clients, and hostile entries in Redis (F21)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest

from tests.chaos.attack import fault_name, measure_growth, memory_of, p99_of, probe_livez
from tests.chaos.conftest import NewKey
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway.http_ways import BY_NGINX, DIRECTLY, SETTINGS, THROUGH_NGINX, WAYS, Way, open_way

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

SLOW_CLIENTS = 200
EMBED, V1 = "/embed", "/v1/embeddings"
MAX_BLOCKED_S = {DIRECTLY: 0.05, THROUGH_NGINX: 0.25}
"""Through nginx, the attackers' TLS takes the machine's cores, too."""

ATTACK_S = 2.5
MAX_GROWTH_MB = 60.0
"""Maximum growth of a gateway with some hundred of these clients: each may fill a body up to its limit of 2 MB."""

MAX_V1_GROWTH_MB = 350.0
"""The same for /v1, where 20 bodies of 10 MB may be in memory at once, and some of them twice."""

Attack = Callable[[Way], Awaitable[bytes]]


def head(way: Way, path: str = EMBED) -> bytes:
    """Returns the head of a POST request, without its last fields."""
    fields = f"Host: x\r\nContent-Type: application/json\r\nX-Api-Key: {way.api_key}\r\n"
    return f"POST {way.prefix}{path} HTTP/1.1\r\n{fields}".encode()


async def slow_body(way: Way) -> bytes:
    """Sends a byte every 0.2 s."""

    async def parts() -> AsyncIterator[bytes]:
        yield head(way) + b"Content-Length: 1000\r\n\r\n"
        for _ in range(1_000):
            yield b" "
            await asyncio.sleep(0.2)

    return await way.exchange(parts())


async def endless_body(way: Way) -> bytes:
    """Sends chunks without an end."""

    async def parts() -> AsyncIterator[bytes]:
        yield head(way) + b"Transfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"4000\r\n" + b" " * 0x4000 + b"\r\n"
            await asyncio.sleep(0)

    return await way.exchange(parts())


async def deep_json(way: Way) -> bytes:
    """Sends 900,000 nested brackets."""
    return await whole_body(way, b'{"text": ' + b"[" * 900_000, EMBED)


async def wide_json(way: Way) -> bytes:
    """Sends 450,000 numbers instead of texts."""
    return await whole_body(way, b'{"texts": [1' + b",1" * 450_000 + b"]}", EMBED)


async def brackets(way: Way) -> bytes:
    """Sends ten million nested brackets to /v1, where bodies may be longer."""
    return await whole_body(way, b'{"model": "a", "input": ' + b"[" * 10_000_000)


async def empty_texts(way: Way) -> bytes:
    """Sends a million empty texts."""
    return await whole_body(way, b'{"model": "a", "input": [""' + b',""' * 1_000_000 + b"]}")


async def token_ids(way: Way) -> bytes:
    """Sends three times the maximum number of token ids."""
    return await whole_body(way, b'{"model": "a", "input": [[1' + b",1234" * 1_500_000 + b"]]}")


async def whole_body(way: Way, body: bytes, path: str = V1) -> bytes:
    """Sends a body, to /v1/embeddings by default."""

    async def parts() -> AsyncIterator[bytes]:
        yield head(way, path) + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    return await way.exchange(parts())


ATTACKS: dict[str, tuple[Attack, int]] = {
    "slow bodies": (slow_body, 408),
    "endless bodies": (endless_body, 413),
    "deep JSON": (deep_json, 400),
    "wide JSON": (wide_json, 400),
    "10 MB of brackets on /v1": (brackets, 400),
    "a million empty texts on /v1": (empty_texts, 400),
    "1.5 million token ids on /v1": (token_ids, 400),
}


@pytest.mark.parametrize("way_name", WAYS)
@pytest.mark.parametrize("name", ATTACKS)
async def test_hostile_clients(scenario: Scenario, new_key: NewKey, tmp_path: Path, name: str, way_name: str) -> None:
    """F21: 20 or 200 attacks at once are answered with a 4xx; memory is bounded, and other requests are not delayed.

    The attackers have an API key, the other clients have that of another tenant, and both go directly or through nginx.
    """
    attack, status = ATTACKS[name]
    gateway = await scenario.cluster.start_gateway(**SETTINGS, body_timeout_s=3)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    process, other = psutil.Process(gateway.program.pid), await new_key()
    number, answers = SLOW_CLIENTS if name == "slow bodies" else 20, list[bytes]()
    max_growth_mb = MAX_V1_GROWTH_MB if "/v1" in name else MAX_GROWTH_MB
    async with (
        open_way(way_name, gateway, tmp_path, await new_key()) as way,
        scenario.load(clients=8, way=replace(way, api_key=other)) as calls,
        probe_livez(gateway) as latencies_s,
        measure_growth(memory_of(process)) as growths_mb,
    ):
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            answers += await asyncio.gather(*(attack(way) for _ in range(number)))
    (growth_mb,) = growths_mb
    expected = [status, BY_NGINX[name]] if way_name == THROUGH_NGINX and name in BY_NGINX else [status]
    rejected = sum(answer.startswith(tuple(b"HTTP/1.1 %d " % each for each in expected)) for answer in answers)
    p99_ms = p99_of(latencies_s)
    found = {
        "attacks": len(answers),
        "rejected": rejected,
        "livez_p99_ms": round(p99_ms),
        "growth_mb": round(growth_mb),
    }
    verdict = scenario.judge(fault_name(f"F21 {name}", way_name), calls, **found)
    assert rejected == len(answers)
    assert all_correct(verdict)
    assert p99_ms <= 1e3 * MAX_BLOCKED_S[way_name]
    assert growth_mb <= max_growth_mb


async def test_hostile_entries(scenario: Scenario) -> None:
    """F21: entries whose bodies unpack to huge or invalid values fail, and nothing else does."""
    await scenario.start(gateways=1, workers=1)
    bombs = [
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\xc6\xff\xff\xff\xff",  # four gigabytes of bytes
        b"\x91" * 100_000,  # arrays in arrays
        msgpack.packb({"op": "embed", "inputs": ["a"] * 100_000, "options": {}}),
        msgpack.packb(msgpack.ExtType(5, b"x" * 1_000)),
        b"",
    ]
    worker = psutil.Process(scenario.workers[0].pid)
    before_mb = worker.memory_info().rss / 1e6
    seconds, micros = await scenario.raw.time()
    deadline_ms = seconds * 1000 + micros // 1000 + 60_000
    async with scenario.load(clients=8) as calls:
        for number in range(20):
            for at, bomb in enumerate(bombs):
                fields: dict[Any, Any] = {
                    "id": f"bomb-{number}-{at}",
                    "v": 1,
                    "n": 1,
                    "pos": 0,
                    "cost": 1,
                    "deadline_ms": deadline_ms,
                }
                await scenario.raw.xadd(scenario.cluster.keys.lanes[0], {**fields, "body": bomb})
            await scenario.sleep_randomly()
    await scenario.wait_until_drained()
    growth_mb = worker.memory_info().rss / 1e6 - before_mb
    verdict = scenario.judge("F21 msgpack bombs", calls, bombs=20 * len(bombs), growth_mb=round(growth_mb))
    assert all_correct(verdict)
    assert growth_mb <= MAX_GROWTH_MB
    assert scenario.workers[0].running
    assert not scenario.workers[0].log_records("engine died")
    await scenario.raw.delete(
        scenario.cluster.keys.backlog, *[key async for key in scenario.raw.scan_iter(match="*reply:bomb*")]
    )
