"""Opens connections to the server under load."""

from __future__ import annotations

import asyncio
import ssl

from redbatch.bench.connection import Connection, ConnectionCallbacks
from redbatch.bench.target import Target

CONNECT_TIMEOUT_S = 5.0
MAX_CONCURRENT_CONNECTS = 64
"""A server's accept queue is often as short as 128."""


class Connector:
    """Opens connections to one target, and counts them."""

    def __init__(self, target: Target, *, keep_bodies: bool) -> None:
        self._target = target
        self._keep_bodies = keep_bodies
        self._tls = ssl.create_default_context() if target.tls else None
        self.opened = 0

    async def open(self, owner: ConnectionCallbacks) -> Connection:
        """Returns a new connection. Raises OSError."""
        connection = Connection(owner, keep_bodies=self._keep_bodies)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: connection, self._target.host, self._target.port, ssl=self._tls
            )
        self.opened += 1
        return connection

    async def open_all(self, owner: ConnectionCallbacks, number: int, opened: set[Connection]) -> None:
        """Adds so many new connections to `opened`. Raises OSError when one of them cannot be opened."""
        opened.add(await self.open(owner))
        while len(opened) < number:
            dialed = min(MAX_CONCURRENT_CONNECTS, number - len(opened))
            results = await asyncio.gather(*(self.open(owner) for _ in range(dialed)), return_exceptions=True)
            opened.update(each for each in results if isinstance(each, Connection))
            for each in results:
                if isinstance(each, BaseException):
                    raise each
