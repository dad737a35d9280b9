"""A scripted server for the tests of the load generator, which counts requests and connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tests.waiting import wait_until

VECTOR = b'{"embedding": [1.0, 2.0]}'


def answer(status: int = 200, body: bytes = VECTOR, headers: str = "") -> bytes:
    """Returns a complete answer."""
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def refusal(code: str) -> bytes:
    """Returns an error in the format of Redbatch."""
    return answer(503, f'{{"error": {{"code": "{code}"}}}}'.encode())


class Server:
    """Answers the n-th request with `script(n)`; an empty answer closes the connection, and None leaves it waiting."""

    def __init__(self, script: Callable[[int], bytes | None], begin: asyncio.Event | None) -> None:
        self.requests = 0
        self.connections = 0
        self.bodies: list[bytes] = []
        self.url = ""
        self._script = script
        self._begin = begin
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self.connections += 1
        self._open.add(writer)
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._open.discard(writer)

    async def close(self) -> None:
        """Aborts all connections and waits until they are closed."""
        for writer in list(self._open):
            writer.transport.abort()
        await wait_until(lambda: not self._open, "all connections are gone")

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if self._begin is not None:
                await self._begin.wait()
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.bodies.append(await reader.readexactly(length))
                self.requests += 1
                response = self._script(self.requests)
                if response is None:
                    await reader.read()
                    break
                if not response:
                    break
                writer.write(response)
                if b"Connection: close" in response:
                    break


@contextlib.asynccontextmanager
async def serving(script: Callable[[int], bytes | None], begin: asyncio.Event | None = None) -> AsyncIterator[Server]:
    """Yields a server on a free port; it reads nothing before `begin` is set."""
    server = Server(script, begin)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
    await server.close()
