"""Notices that the address of Redis leads elsewhere while connections to the old server hang.

A node that is lost, and an address that moves without a reset, leave connections on which nothing ever arrives. Each
would wait for its own timeout, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections

log = structlog.get_logger()

UNREACHABLE_AFTER_S = 1.0
"""A call that takes longer may never be answered."""

ATTEMPT_S, PAUSE_S = 0.5, 0.1
"""Maximum time of a probe, and the pause after it: the address may move while they go on."""

LEAD_S = 0.25
"""How long the older call may still be answered after a probe was: a server that was busy answers it first."""


class SilenceProbe:
    """Watches a call that a process sends regularly. If it is silent where a new connection is not, closes all others.

    The process then connects again, and recovers as after any broken connection. The probe is the call itself: a server
    that is only slow, a replica, and one that refuses writes for a while do not answer it over a new connection either.

    Args:
        connections: which are closed.
        connection: over which the process sends the call.
        send: sends the call over a connection; it may arrive twice.
    """

    def __init__(
        self,
        connections: QueueConnections,
        connection: RedisConnection,
        send: Callable[[RedisConnection], Awaitable[object]],
    ) -> None:
        self._connections = connections
        self._watched = connection
        self._send = send
        self._connection = connections.connection("probe")
        self._num_timeouts = 0

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Watches the call in the block: while it has no answer, and whether it is the first after a timeout."""
        probing = asyncio.create_task(self._probe(), name="silence probe")
        try:
            yield
        finally:
            probing.cancel()
        if self._is_after_timeout:  # a timeout closes the connection, so this is a new one
            self._reset_all()

    @property
    def _is_after_timeout(self) -> bool:
        """Whether a call had a timeout, and none has been answered since."""
        return self._watched.num_timeouts > self._num_timeouts

    async def _probe(self) -> None:
        if not self._is_after_timeout:  # otherwise the server has been silent for long enough
            await asyncio.sleep(UNREACHABLE_AFTER_S)
        try:
            await self._wait_for_answer()
            await asyncio.sleep(LEAD_S)
        finally:
            await self._connection.close()
        self._reset_all()

    async def _wait_for_answer(self) -> None:
        """Sends the call over a new connection until it is answered."""
        while True:
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    await self._send(self._connection)
                    return
            except (RedisUnreachableError, TimeoutError):
                pass
            except Exception as error:  # noqa: BLE001 - the call itself will have the same answer, and handle it
                log.debug("the probe of a silent Redis failed", reason=str(error))
            await asyncio.sleep(PAUSE_S)

    def _reset_all(self) -> None:
        self._num_timeouts = self._watched.num_timeouts
        log.warning("Redis answers over a new connection after a silence: all connections are opened again")
        self._connections.reset_all()
