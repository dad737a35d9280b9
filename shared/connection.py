"""Connections to Redis, and the scripts run over them.

A `RedisConnection` has one owner. There is no pool: a process has one connection to Redis for each RedisConnection. A
call that fails or is cancelled closes its connection, because a reply that may still come belongs to no call; the next
call opens a new connection. Nothing is repeated here: only the caller knows whether that is safe.

All connections of a `QueueConnections` lead to one Redis (shared.home). If that has a successor, all of them move.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import hiredis
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.redis_errors import (
    CommandUnknownError,
    KeyMovedError,
    ScriptMissingError,
    UnexpectedReplyError,
    became_replica,
    leads_elsewhere,
    to_exception,
)
from shared.redis_opener import RedisOpener
from shared.redis_wire import IDENTITY, Wire, parse_identity, read_identity
from shared.scripts import Script

if TYPE_CHECKING:
    from shared.queue_connections import QueueConnections

Argument = str | bytes | int | float

BLOCK_S = 2.0
"""Longest single blocking read: a connection that died silently is noticed after this time and that of a call."""

CONNECT_ATTEMPTS = 4
"""Attempts to reach the home by an address that leads to several Redis. Failures to connect are not repeated."""

MAX_REDIRECTIONS = 4
"""How often a call for a key that several queues share may be sent to another server of a Redis Cluster."""

OnUnexpectedReply = Callable[[str, str], None]
"""Called with the name of a connection and an error reply that no caller can do anything about."""


class RedisConnection:
    """One connection to Redis, used by one call at a time.

    Args:
        connections: creates connections, with their options, and knows the home.
        name: shown by CLIENT LIST.
        identified: whether to read the connection's id at Redis, so that it can be killed after it broke.
        roams: whether it goes where a Redis Cluster has the key of each call, wherever the home is.

    Attributes:
        num_timeouts: number of calls that were not answered in time, although the connection was open.
    """

    def __init__(
        self, connections: QueueConnections, name: str, *, identified: bool = False, roams: bool = False
    ) -> None:
        self._connections = connections
        self._name = name
        self._roams = roams
        self._is_server_known = False
        self._identified = identified
        self._identity: dict[bytes, bytes] = {}
        self._orphans: deque[dict[bytes, bytes]] = deque(maxlen=16)
        self._lock = asyncio.Lock()
        self._opener = RedisOpener(connections.source, name, roams=roams)
        self._exchange = self._exchange_roaming if roams else self._exchange_once
        self._timeout_s = connections.settings.redis_timeout_s
        self._has_read_only_scripts = True
        self._wire: Wire | None = None
        self._opening: asyncio.Timeout | None = None
        self.num_timeouts = 0

    async def call(self, *command: Argument, block_s: float = 0.0) -> Any:  # noqa: ANN401 - depends on the command
        """Sends one command and returns its reply, for which it may wait at Redis for `block_s`.

        Raises:
            RedisUnreachableError: no connection, no reply in time, or an error reply, for some of which there are
                subclasses in shared.redis_errors.
        """
        async with self._lock:
            return (await self._exchange((command,), block_s))[0]

    async def call_all(self, commands: Sequence[Sequence[Argument]], *, block_s: float = 0.0) -> list[Any]:
        """Sends commands at once over one connection and returns their replies; `block_s` is that of all together.

        Raises as `call` does; some commands may have been executed then.
        """
        async with self._lock:
            return await self._exchange(commands, block_s) if commands else []

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:  # noqa: ANN401 - depends on the script
        """Runs a script by its SHA-1, or by its text if Redis does not know it yet. Raises as `call` does.

        A script that only reads is called with EVALSHA_RO where Redis has it (7.0): its user then needs no permission
        to write.
        """
        async with self._lock:  # over both attempts, so that calls reach Redis in their order
            if script.reads and self._has_read_only_scripts:
                try:
                    return await self._evaluate(script, "_RO", keys, args)
                except CommandUnknownError:
                    self._has_read_only_scripts = False
            return await self._evaluate(script, "", keys, args)

    async def _evaluate(self, script: Script, suffix: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:  # noqa: ANN401
        try:
            return (await self._exchange(((f"EVALSHA{suffix}", script.sha, len(keys), *keys, *args),)))[0]
        except ScriptMissingError:
            return (await self._exchange(((f"EVAL{suffix}", script.text, len(keys), *keys, *args),)))[0]

    async def pop(self, key: str, timeout_s: float) -> bytes | None:
        """Pops the first element of a list; waits for one at most `timeout_s` seconds (and at most BLOCK_S)."""
        timeout_s = max(0.01, min(timeout_s, BLOCK_S))
        reply = await self.call("BLPOP", key, f"{timeout_s:.3f}", block_s=timeout_s)
        return None if reply is None else reply[1]

    async def kill(self, other: RedisConnection) -> None:
        """Closes, at Redis, the connections that `other` left open when it broke.

        Redis may not have noticed yet that a connection is no longer read, and may send replies to it. The address is
        sent with the id because ids start again when Redis restarts. The current connection of `other` is never killed.
        """
        for orphan in list(other._orphans):
            try:
                await self.call("CLIENT", "KILL", "ID", orphan[b"id"], "ADDR", orphan[b"addr"])
            except UnexpectedReplyError as error:  # it will not succeed later either
                self._connections.refused.warn("CLIENT KILL", error)
            if orphan in other._orphans:  # kept until the kill has succeeded, so that it can be tried again
                other._orphans.remove(orphan)

    def keys_of(self, queue: str) -> Keys:
        """Returns the keys of a queue, or of its shard, in this Redis."""
        return self._connections.keys_of(queue)

    async def ping(self) -> None:
        """Sends PING. Raises as `call` does."""
        await self.call("PING")

    async def reopen(self) -> None:
        """Closes the connection and opens a new one. Raises as `call` does."""
        async with self._lock:
            await self.close()
            await self._exchange(IDENTITY[:1])

    async def check_home(self) -> None:
        """Reads again which Redis this is, as its replication id changes when it gets a replica; raises as `call` does.

        Does nothing if there is no connection, or if Redis does not identify itself. If sentinels name another master,
        the connections to the former one are reset: it may not have noticed yet.
        """
        async with self._lock:
            if self._wire is not None and (master := await self._opener.find_master()) is not None:
                self._connections.home.reset_others(str(master))
            if self._wire is None or self._wire.is_lost or not self._is_server_known:
                return
            server = parse_identity(await self._exchange(IDENTITY))
            if self.answered_at == -inf:  # reset since: all connections move, and this reply is old
                return
            if refusal := self._connections.home.admit(self, server, is_new=False):
                raise RedisUnreachableError(refusal)

    @property
    def server(self) -> str:
        """Host and port of the server where the URL does not have them, as with sentinels; else empty."""
        return self._opener.server

    @property
    def answered_at(self) -> float:
        """When Redis last answered over it (event loop's clock); minus infinity if it is not open."""
        return -inf if self._wire is None or self._wire.is_lost else self._wire.answered_at

    async def unblock(self, other: RedisConnection) -> None:
        """Makes the blocking read of `other`, if there is one, return at once with no element, unless Redis refuses."""
        if other._identity:
            try:
                await self.call("CLIENT", "UNBLOCK", other._identity[b"id"])
            except UnexpectedReplyError as error:
                self._connections.refused.warn("CLIENT UNBLOCK", error)

    def reset(self) -> None:
        """Resets the connection, also while it is opened: a call in flight fails, and the next one opens a new one."""
        if self._opening is not None:
            if not self._opening.expired():  # it may be reset again before it has ended
                self._opening.reschedule(0)
        elif self._wire is not None:
            self._wire.abort()

    async def _exchange_roaming(self, commands: Sequence[Sequence[Argument]], block_s: float = 0.0) -> list[Any]:
        """Does as `_exchange`, at the server that a Redis Cluster names."""
        for _ in range(MAX_REDIRECTIONS):
            try:
                return await self._exchange_once(commands, block_s)
            except KeyMovedError as error:
                error_of_key = error
                if not error.is_elsewhere:
                    raise
        raise error_of_key

    async def _exchange_once(self, commands: Sequence[Sequence[Argument]], block_s: float = 0.0) -> list[Any]:
        try:
            wire = self._wire
            if wire is None or wire.is_lost:  # it broke while it was idle, so no reply is lost
                wire = await self._open_unless_reset()
            replies = await wire.exchange_all(commands, block_s + self._timeout_s)
        except ResponseError as error:  # while connecting
            await self.close()
            raise self._to_exception(f"{error.status_code or ''} {error}".strip()) from None
        except (RedisError, OSError, TimeoutError) as error:
            connecting = self._wire is None
            if connecting:
                self._opener.look_again()
            self.num_timeouts += isinstance(error, TimeoutError) and not connecting
            await self.close()
            unreachable = RedisUnreachableError(self._opener.describe_failure(error, connecting=connecting))
            unreachable.is_refused = isinstance(error, AuthenticationError)
            raise unreachable from error
        except BaseException:
            await self.close()
            raise
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                await self._handle_error(str(reply))
                raise self._to_exception(str(reply))
        return replies

    async def _handle_error(self, reply: str) -> None:
        """Closes connections that do not lead to the right server any more, as an error reply says."""
        if not leads_elsewhere(reply):
            return
        await self.close()
        if self._opener.redirect(reply) and not self._roams:
            self._connections.home.record_redirect()
        if became_replica(reply) and not self._roams:
            self._connections.reset_all()

    def _to_exception(self, reply: str) -> RedisUnreachableError:
        error = to_exception(reply)
        if type(error) is UnexpectedReplyError:
            self._connections.on_unexpected(self._name, error.reply)
        return error

    async def _open_unless_reset(self) -> Wire:
        """Does as `_open`. Raises TimeoutError if the connection is reset meanwhile."""
        try:
            async with asyncio.timeout(None) as self._opening:
                return await self._open()
        finally:
            self._opening = None

    async def _open(self) -> Wire:
        """Connects to the home. If the address leads to another Redis, tries again: the next time it may not."""
        if self._wire is not None:
            self._identity = {}  # no command is outstanding on it, so Redis sends nothing to it: it need not be killed
            await self.close()
        if self._roams:
            self._wire = await self._opener.open()
            return self._wire
        for _ in range(CONNECT_ATTEMPTS):
            wire = await self._opener.open()
            server, info = await read_identity(wire, self._timeout_s, with_client=self._identified)
            if isinstance(info, hiredis.ReplyError):
                error = to_exception(str(info))
                if not isinstance(error, UnexpectedReplyError):
                    raise ResponseError(str(info))
                self._connections.refused.warn("CLIENT INFO", error)
                info = b""
            refusal = self._connections.home.admit(self, server, is_new=True)
            if not refusal:
                self._wire, self._is_server_known = wire, server is not None
                self._identity = dict(part.split(b"=", 1) for part in info.split() if b"=" in part)
                return wire
            self._opener.look_again()
            await self.close()
        raise RedisUnreachableError(refusal)

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._identity:
            self._orphans.append(self._identity)
            self._identity = {}
        self._wire = None
        await self._opener.close()
