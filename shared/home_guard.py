"""Keeps all connections of a queue at one Redis, as `shared.home` decides: refuses new ones, and cuts old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Protocol

import structlog

from shared.errors import RedisUnreachableError
from shared.home import Admission, Home, Server

log = structlog.get_logger()

ALIVE_S = 3.0
"""The home counts as alive this long after its last answer: gateways and workers call it each second."""

UNCERTAIN_S = 30.0
"""How long a successor of a home that has died is looked for: another master may have been there first."""


class GuardedConnection(Protocol):
    """A connection of the queue."""

    @property
    def server(self) -> str:
        """Host and port of the server; empty if only the URL has them."""

    @property
    def answered_at(self) -> float:
        """When Redis last answered over it (event loop's clock); minus infinity without an open connection."""

    def reset(self) -> None:
        """Resets the connection, if it is open."""


class HomeGuard:
    """Admits the connections of one process to one queue.

    Args:
        queue: its name, for logs.
        connections: all of its connections; the list may grow.
        connect: makes one of them again, which may raise RedisUnreachableError.
    """

    def __init__(
        self, queue: str, connections: Sequence[GuardedConnection], connect: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._queue = queue
        self._connections = connections
        self._connect = connect
        self._home = Home()
        self._on_move: Callable[[], None] | None = None
        self._was_redirected = False
        self._uncertain_until = -inf
        self._looking: asyncio.Task[None] | None = None
        self._has_warned = False

    def watch(self, on_move: Callable[[], None]) -> None:
        """Has each move reported, and logged: the new home may not know what the former one has answered last."""
        self._on_move = on_move

    def admit(self, connection: GuardedConnection, server: Server | None, *, is_new: bool) -> str:
        """Decides whether a connection may be used, given the Redis at its end (None: it does not identify itself).

        Returns why it may not, as it leads to a replica, or to a Redis that has nothing to do with the home; else "".

        If one that is not new, and so has led to the home, now leads elsewhere, something between has moved them all.
        If the home was not alive when it was left, its successor may come later: a connection is made now and then.
        """
        if server is None:
            self._warn_once()
            return ""
        now = asyncio.get_running_loop().time()
        is_alive = (
            is_new and not self._was_redirected and any(now - each.answered_at < ALIVE_S for each in self._connections)
        )
        admission = self._home.admit(server, is_alive=is_alive)
        if admission is Admission.SAME and is_new:
            self._was_redirected = False
        if admission is Admission.REFUSED:
            if not is_new:  # the home is a replica now: connections that only read there would keep it alive
                self.reset_all()
            what = "another Redis than other connections, not to its successor" if server.is_master else "a replica"
            return f"The address of Redis leads to {what}: try again."
        if admission is Admission.MOVES:
            self._uncertain_until = -inf if is_alive or self._was_redirected else now + UNCERTAIN_S
            self._was_redirected = False
            self.reset_all(but=connection)
            if self._on_move is not None:
                where = {"server": connection.server} if connection.server else {}
                log.warning("another Redis has taken over: all connections move to it", queue=self._queue, **where)
                self._on_move()
        elif now < self._uncertain_until and not is_new and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())
        return ""

    def record_redirect(self) -> None:
        """Records that the home itself has named another server (MOVED), to which the next connection leads."""
        self._was_redirected = True

    async def _look(self) -> None:
        """Makes a connection, to see whether it leads to a better home."""
        with suppress(RedisUnreachableError):
            await self._connect()

    def reset_all(self, but: GuardedConnection | None = None) -> None:
        """Resets every connection except one: calls under way fail, and the next calls open new connections."""
        for connection in self._connections:
            if connection is not but:
                connection.reset()

    def reset_others(self, server: str) -> None:
        """Resets each connection that leads elsewhere than to this server (host and port): it is the master now."""
        for connection in self._connections:
            if connection.server not in ("", server):
                connection.reset()

    async def stop(self) -> None:
        """Ends what runs in the background."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _warn_once(self) -> None:
        if not self._has_warned and self._on_move is not None:
            self._has_warned = True
            log.warning(
                "Redis does not say which server it is: a change of its master may be noticed late. Allow INFO",
                queue=self._queue,
            )
