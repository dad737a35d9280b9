"""The missing parts of a cluster, read from a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redbatch.readiness import fetch_missing_parts
from shared.process.listener import listen


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """Runs a server that gives one answer to every client; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status":"ok"}', []),
        (b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"status":"unavailable","missing":["worker"]}', ["worker"]),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\ndraining", None),
        (b"", None),
    ],
)
async def test_missing_parts_are_read(answer: bytes, missing: list[str] | None) -> None:
    """Ready is an empty list; an invalid answer counts as no answer."""
    async with answering(answer) as port:
        assert await fetch_missing_parts("127.0.0.1", port) == missing


async def test_no_gateway_is_no_answer() -> None:
    """Before the first gateway accepts connections, the missing parts are unknown."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    assert await fetch_missing_parts("0.0.0.0", port) is None  # noqa: S104 - connected to, not listened on
