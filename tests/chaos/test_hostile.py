"""Clients, and entries in Redis, that mean harm (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest

from tests.chaos.scenario import Scene, whole
from tests.integration.gateway.house import Gateway

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.alone]

ROOT = Path(__file__).parents[2]
SLOW_CLIENTS = 200
HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
V1_HEAD = HEAD.replace(b"/embed", b"/v1/embeddings")
BLOCKED_S = 0.05
ATTACK_S = 2.5
LEAST_LOOKS = 100
"""So that the slowest of a hundred is not the slowest of all."""

MORE_MB = 60.0
"""What a gateway may need for some hundred of such clients: each may fill a body to its limit of 2 MB."""

MORE_V1_MB = 350.0
"""The same on /v1, where twenty bodies of 10 MB may be there at once, and some of them twice."""

Attack = Callable[[Gateway], Awaitable[bytes]]


async def exchange(gateway: Gateway, parts: AsyncIterator[bytes]) -> bytes:
    """Sends parts until the other side says something; returns that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    answer = asyncio.create_task(reader.read(65_536))
    with contextlib.suppress(OSError):
        async for part in parts:
            writer.write(part)
            await writer.drain()
            if answer.done():
                break
        async with asyncio.timeout(20):
            await answer
    writer.transport.abort()
    with contextlib.suppress(OSError):
        return await answer
    return b""


async def slow_body(gateway: Gateway) -> bytes:
    """A byte now and then."""

    async def parts() -> AsyncIterator[bytes]:
        yield HEAD + b"Content-Length: 1000\r\n\r\n"
        for _ in range(1_000):
            yield b" "
            await asyncio.sleep(0.2)

    return await exchange(gateway, parts())


async def endless_body(gateway: Gateway) -> bytes:
    """Chunk after chunk."""

    async def parts() -> AsyncIterator[bytes]:
        yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"4000\r\n" + b" " * 0x4000 + b"\r\n"
            await asyncio.sleep(0)

    return await exchange(gateway, parts())


async def deep_json(gateway: Gateway) -> bytes:
    """Brackets in brackets."""
    body = b'{"text": ' + b"[" * 900_000

    async def parts() -> AsyncIterator[bytes]:
        yield HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    return await exchange(gateway, parts())


async def wide_json(gateway: Gateway) -> bytes:
    """Half a million numbers where texts should be."""
    body = b'{"texts": [1' + b",1" * 450_000 + b"]}"

    async def parts() -> AsyncIterator[bytes]:
        yield HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    return await exchange(gateway, parts())


async def brackets(gateway: Gateway) -> bytes:
    """Ten million of them, where bodies may be long."""
    return await whole_body(gateway, b'{"model": "a", "input": ' + b"[" * 10_000_000)


async def empty_texts(gateway: Gateway) -> bytes:
    """A million of them."""
    return await whole_body(gateway, b'{"model": "a", "input": [""' + b',""' * 1_000_000 + b"]}")


async def token_ids(gateway: Gateway) -> bytes:
    """Three times as many as may be."""
    return await whole_body(gateway, b'{"model": "a", "input": [[1' + b",1234" * 1_500_000 + b"]]}")


async def whole_body(gateway: Gateway, body: bytes) -> bytes:
    """Sends a body to /v1/embeddings."""

    async def parts() -> AsyncIterator[bytes]:
        yield V1_HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    return await exchange(gateway, parts())


ATTACKS: dict[str, tuple[Attack, bytes]] = {
    "slow bodies": (slow_body, b"408"),
    "endless bodies": (endless_body, b"413"),
    "deep JSON": (deep_json, b"400"),
    "wide JSON": (wide_json, b"400"),
    "10 MB of brackets on /v1": (brackets, b"413"),
    "a million empty texts on /v1": (empty_texts, b"413"),
    "1.5 million token ids on /v1": (token_ids, b"413"),
}


@asynccontextmanager
async def onlooker(gateway: Gateway) -> AsyncIterator[list[float]]:
    """Has another process ask for /livez meanwhile; fills the list with how long each answer took (s)."""
    took: list[float] = []
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.chaos.latency_probe", str(gateway.port)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()  # it looks
    try:
        yield took
    finally:
        said, _ = await process.communicate(b"")  # which ends its input
    assert process.returncode == 0
    took += json.loads(said)


@pytest.mark.parametrize("name", ATTACKS)
async def test_hostile_clients(scene: Scene, name: str) -> None:
    """F21: 20 or 200 of them at once are told off with a 4xx; memory is bounded, and nobody else waits for them."""
    attack, status = ATTACKS[name]
    gateway = await scene.house.gateway(body_timeout_s=3)
    scene.gateways.append(gateway)
    await scene.hire()
    await scene.seen()
    process = psutil.Process(gateway.program.pid)
    number, answers = SLOW_CLIENTS if name == "slow bodies" else 20, list[bytes]()
    more = MORE_V1_MB if "/v1" in name else MORE_MB
    async with scene.load(clients=8) as calls, onlooker(gateway) as took:
        before_mb = process.memory_info().rss / 1e6
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            answers += await asyncio.gather(*(attack(gateway) for _ in range(number)))
        more_mb = process.memory_info().rss / 1e6 - before_mb
    told_off = sum(answer.startswith(b"HTTP/1.1 " + status) for answer in answers)
    assert len(took) >= LEAST_LOOKS
    p99_ms = 1e3 * sorted(took)[int(0.99 * (len(took) - 1))]
    found = {"attacks": len(answers), "told_off": told_off, "livez_p99_ms": round(p99_ms), "more_mb": round(more_mb)}
    verdict = scene.judge(f"F21 {name}", calls, **found)
    assert told_off == len(answers)
    assert whole(verdict)
    assert p99_ms <= 1e3 * BLOCKED_S
    assert more_mb <= more


async def test_hostile_entries(scene: Scene) -> None:
    """F21: bodies that unpack to more than they are, or to what they should not. They fail, and nothing else does."""
    await scene.open(gateways=1, workers=1)
    bombs = [
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\xc6\xff\xff\xff\xff",  # four gigabytes of bytes
        b"\x91" * 100_000,  # arrays in arrays
        msgpack.packb({"op": "embed", "inputs": ["a"] * 100_000, "options": {}}),
        msgpack.packb(msgpack.ExtType(5, b"x" * 1_000)),
        b"",
    ]
    worker = psutil.Process(scene.workers[0].pid)
    before_mb = worker.memory_info().rss / 1e6
    seconds, micros = await scene.raw.time()
    deadline_ms = seconds * 1000 + micros // 1000 + 60_000
    async with scene.load(clients=8) as calls:
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
                await scene.raw.xadd(scene.house.keys.lanes[0], {**fields, "body": bomb})
            await scene.pause()
    await scene.drained()
    more_mb = worker.memory_info().rss / 1e6 - before_mb
    verdict = scene.judge("F21 msgpack bombs", calls, bombs=20 * len(bombs), more_mb=round(more_mb))
    assert whole(verdict)
    assert more_mb <= MORE_MB
    assert scene.workers[0].running
    assert not scene.workers[0].logged("engine died")
    await scene.raw.delete(scene.house.keys.backlog, *[key async for key in scene.raw.scan_iter(match="*reply:bomb*")])
