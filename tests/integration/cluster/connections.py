"""A client with thousands of concurrent connections, over plain asyncio streams."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from tests.operations import EMBED, Operation

MAX_OPENING = 256
"""Maximum number of connections that are being opened at a time."""


def raise_open_files(number: int) -> None:
    """Raises the limit of open files, for this process and those that it starts, to `number` if it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


@dataclass
class ClientConnection:
    """One connection to a gateway, for one request with one text."""

    text: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    operation: Operation = EMBED

    async def call(self) -> str:
        """Sends the request; returns ok, foreign (the answer for another text), nothing (no answer), or the status."""
        body = json.dumps(self.operation.body(self.text) | {"timeout_ms": 60_000}).encode()
        heads = f"Host: x\r\nConnection: close\r\nContent-Length: {len(body)}"
        request = f"POST {self.operation.path} HTTP/1.1\r\n{heads}\r\n\r\n"
        self.writer.write(request.encode() + body)
        answer = await self.reader.read(-1)
        self.writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1].decode() if head else "nothing"
        if status != "200":
            return status
        return "ok" if self.operation.is_answer(orjson.loads(content), self.text) else "foreign"


async def connect(ports: Sequence[int], texts: Sequence[str], operation: Operation = EMBED) -> list[ClientConnection]:
    """Opens a connection for each text, to the ports in turn."""
    slots = asyncio.Semaphore(MAX_OPENING)

    async def one(number: int, text: str) -> ClientConnection:
        async with slots:
            streams = await asyncio.open_connection("127.0.0.1", ports[number % len(ports)])
            return ClientConnection(text, *streams, operation)

    return await asyncio.gather(*(one(number, text) for number, text in enumerate(texts)))
