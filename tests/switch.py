"""An address that leads to several servers, in a separate process, so that a busy test does not delay its traffic.

`python -m tests.switch PORT...` forwards each connection to one of these ports, at random, and prints its own port. It
reads commands, one a line, and answers each with a line: `route PORT...`, and `cut N`, which resets N connections.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from functools import partial
from typing import Self, cast
from urllib.parse import urlsplit

import uvloop

from tests.servers import Server
from tests.waiting import wait_until

HOST = "127.0.0.1"
ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: a close is a reset."""


class Switch:
    """The address. Use as a context manager.

    Args:
        servers: where connections lead at first.

    Attributes:
        port: of 127.0.0.1.
    """

    def __init__(self, *servers: Server) -> None:
        self._servers = servers
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        user, at, _ = urlsplit(self._servers[0].url).netloc.rpartition("@")
        return f"redis://{user}{at}{HOST}:{self.port}/0"

    async def route(self, *servers: Server) -> None:
        """Has each new connection lead to one of these servers, at random."""
        await self._send(f"route {_ports_of(servers)}")

    async def cut(self, num: int = sys.maxsize) -> None:
        """Resets open connections: all, or that many of them."""
        await self._send(f"cut {num}")

    def hold(self) -> None:
        """Forwards nothing more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def lose(self) -> None:
        """Resets all connections, with what is on its way over them."""
        assert self._process is not None
        self._process.kill()

    async def _send(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        await self._read()

    async def _read(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())

    async def __aenter__(self) -> Self:
        ports = _ports_of(self._servers)
        command = [sys.executable, "-m", "tests.switch", *ports.split()]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        self.port = await self._read()
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends with its input, so it also ends with this process
        await self._process.wait()


def _ports_of(servers: Sequence[Server]) -> str:
    return " ".join(str(each.port) for each in servers)


class _Side(asyncio.Protocol):
    """One side of a connection: what arrives goes out at the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Notes the transport, and sends what has arrived at the other side before."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.writelines(self._waiting)

    def send(self, data: bytes) -> None:
        """Sends data at this side, as soon as it is connected."""
        if self.transport is None:
            self._waiting.append(data)
        else:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Forwards data."""
        assert self.other is not None
        self.other.send(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - both sides are closed in any case
        """Closes the other side."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_Side):
    """The side of a client."""

    def __init__(self, switch: _SwitchProcess) -> None:
        super().__init__()
        self._switch = switch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connects to a server."""
        super().connection_made(transport)
        self.other = _Side()
        self.other.other = self
        self._switch.clients.add(self)
        self._switch.connect(self, self.other)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the server's side."""
        super().connection_lost(exc)
        self._switch.clients.discard(self)

    def reset(self) -> None:
        """Resets the connection."""
        assert self.transport is not None
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self.transport.abort()


class _SwitchProcess:
    """The process behind a Switch."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self.clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, client: _Client, side: _Side) -> None:
        """Connects the server's side of a connection; if that fails, resets the client's."""
        task = asyncio.create_task(self._connect(client, side))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: _Client, side: _Side) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: side, HOST, random.choice(self._ports))
        except OSError:
            client.reset()

    async def run(self) -> None:
        """Serves until the input ends."""
        server = await asyncio.get_running_loop().create_server(lambda: _Client(self), HOST, 0)
        _answer(server.sockets[0].getsockname()[1])
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *numbers = line.split()
            if name == "route":
                self._ports = [int(each) for each in numbers]
            else:
                clients = list(self.clients)
                cut = set(random.sample(clients, min(int(numbers[0]), len(clients))))
                for client in cut:
                    client.reset()
                await wait_until(partial(cut.isdisjoint, self.clients), "they are reset", poll_s=0)  # in a later turn
            _answer(len(self.clients))


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_SwitchProcess([int(each) for each in sys.argv[1:]]).run())
