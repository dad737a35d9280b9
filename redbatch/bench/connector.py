"""Opens connections to the server under load."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl

from redbatch.bench.connection import Connection, ConnectionCallbacks
from redbatch.bench.target import Target

CONNECT_TIMEOUT_S = 5.0
MAX_CONCURRENT_CONNECTS = 64
"""Maximum number of concurrent attempts: the accept queue of a server is often as short as 128."""


class Connector:
    """Opens connections to one target, and counts them."""

    def __init__(self, target: Target, *, keep_bodies: bool) -> None:
        self._target = target
        self._keep_bodies = keep_bodies
        self._tls = ssl.create_default_context() if target.tls else None
        self.num_opened = 0

    async def connect(self, callbacks: ConnectionCallbacks) -> Connection:
        """Opens a connection. Raises OSError."""
        connection = Connection(callbacks, keep_bodies=self._keep_bodies)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: connection, self._target.host, self._target.port, ssl=self._tls
            )
        self.num_opened += 1
        return connection

    async def connect_all(
        self, callbacks: ConnectionCallbacks, num_connections: int, connections: set[Connection]
    ) -> None:
        """Opens connections until `connections` has this many. Raises OSError if one of them cannot be opened."""
        connections.add(await self.connect(callbacks))
        while len(connections) < num_connections:
            num_new = min(MAX_CONCURRENT_CONNECTS, num_connections - len(connections))
            results = await asyncio.gather(*(self.connect(callbacks) for _ in range(num_new)), return_exceptions=True)
            connections.update(each for each in results if isinstance(each, Connection))
            for each in results:
                if isinstance(each, BaseException):
                    raise each


def describe_connect_error(error: OSError) -> str:
    """Returns why a connection could not be opened, in words."""
    if isinstance(error, TimeoutError):
        return "no answer to the attempt to connect"
    if error.errno is None or isinstance(error, socket.gaierror | ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno)
