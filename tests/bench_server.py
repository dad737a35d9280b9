"""A server for the load generator's tests: it counts, and answers as the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tests.waiting import wait_until

VECTOR = b'{"embedding": [1.0, 2.0]}'


def answer(status: int = 200, body: bytes = VECTOR, headers: str = "") -> bytes:
    """Returns a whole answer."""
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def refusal(code: str) -> bytes:
    """Returns an error in Redbatch's shape."""
    return answer(503, f'{{"error": {{"code": "{code}"}}}}'.encode())


class Server:
    """Answers the n-th request with `script(n)`; what is empty is no answer, and closes the connection."""

    def __init__(self, script: Callable[[int], bytes | None], begin: asyncio.Event | None) -> None:
        self.requests = 0
        self.connections = 0
        self.bodies: list[bytes] = []
        self.url = ""
        self._script = script
        self._begin = begin
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection; `None` is a request that waits for ever."""
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
        """Drops all connections and waits until they are gone."""
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
                said = self._script(self.requests)
                if said is None:
                    await reader.read()
                    break
                if not said:
                    break
                writer.write(said)
                if b"Connection: close" in said:
                    break


@contextlib.asynccontextmanager
async def serving(script: Callable[[int], bytes | None], begin: asyncio.Event | None = None) -> AsyncIterator[Server]:
    """Gives a server that listens on a port of its own; it reads nothing before `begin`."""
    server = Server(script, begin)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
    await server.close()
