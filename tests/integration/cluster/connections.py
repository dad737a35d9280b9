"""A client for thousands of connections at once, over plain asyncio streams."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes

OPENING = 256


def raise_open_files(number: int) -> None:
    """Lets this process, and those that it starts, have so many files and connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


@dataclass
class ClientConnection:
    """One connection to a gateway, for one text."""

    text: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(self) -> str:
        """Sends the text; returns ok, foreign (another's vector), or the status."""
        body = json.dumps({"text": self.text, "timeout_ms": 60_000}).encode()
        head = f"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = await self.reader.read(-1)
        self.writer.close()
        top, _, told = answer.partition(b"\r\n\r\n")
        status = top.split(b" ", 2)[1].decode() if top else "nothing"
        if status != "200":
            return status
        return "ok" if vector_bytes(orjson.loads(told)["embedding"]) == null_vector(self.text) else "foreign"


async def connect(ports: Sequence[int], texts: Sequence[str]) -> list[ClientConnection]:
    """Opens a connection for each text, over the ports in turn."""
    authenticator = asyncio.Semaphore(OPENING)

    async def one(number: int, text: str) -> ClientConnection:
        async with authenticator:
            return ClientConnection(text, *await asyncio.open_connection("127.0.0.1", ports[number % len(ports)]))

    return await asyncio.gather(*(one(number, text) for number, text in enumerate(texts)))
