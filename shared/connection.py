"""The one door to Redis: connections with every option explicit, and the scripts run over them.

A `Link` is one connection with one owner. There is no pool, so the number of connections of a process is the number of
its links. A call that fails or is cancelled closes its connection, because the reply that may still come belongs to
nobody; the next call opens a new one. Nothing is repeated here: only the caller knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from shared.errors import RedisUnreachable
from shared.keys import Keys
from shared.scripts import Script
from shared.settings import QueueSettings
from shared.tls import trouble
from shared.wire import Wire

Argument = str | bytes | int | float

BLOCK_S = 2.0
"""Longest single blocking read: a connection that died silently is noticed after this and a margin."""

BLOCK_MARGIN_S = 3.0
"""How much longer than its blocking read a connection waits for the answer."""


_REFUSALS = (
    *("LOADING", "OOM", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "MISCONF", "NOREPLICAS"),
    *("NOAUTH", "UNBLOCKED", "max number of clients"),
)


_ELSEWHERE = ("READONLY", "MASTERDOWN", "instance state changed")
"""Redis is a replica now. Its connections stay open, and only a new one may lead to the master."""


class GroupMissing(Exception):
    """The consumer group is gone: the stream was deleted, flushed, or never read."""


class CommandUnknown(Exception):
    """This Redis is too old for a command."""


class NotPermitted(Exception):
    """The user of the URL may not do this."""


class ScriptRefused(Exception):
    """A script refused what it was asked, for a reason that its header gives."""


class Link:
    """One connection to Redis, used by one call at a time.

    Args:
        pool: where connections come from, with their options.
        settings: how long to wait for an answer, unless a call says otherwise; how to speak TLS.
        name: what CLIENT LIST shows.
        identified: whether to learn the connection's id at Redis, so that it can be killed after it broke.
    """

    def __init__(self, pool: ConnectionPool, settings: QueueSettings, name: str, *, identified: bool = False) -> None:
        self._tls = settings.redis_tls
        self._identified = identified
        self._identity: dict[bytes, bytes] = {}
        self._left_behind: deque[dict[bytes, bytes]] = deque(maxlen=16)
        self._lock = asyncio.Lock()
        self._connection: AbstractConnection = pool.make_connection()
        self._connection.client_name = name
        self._timeout_s = settings.redis_timeout_s
        self._tells_reads = True
        self._wire: Wire | None = None

    async def call(self, *command: Argument, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - as the command has it
        """Sends one command and returns its reply.

        Raises:
            RedisUnreachable: no connection, no answer in time, or Redis cannot serve (loading, out of memory).
            GroupMissing: NOGROUP.
            CommandUnknown: Redis has no such command.
            NotPermitted: the user of the URL may not do this.
            ResponseError: any other error reply.
        """
        async with self._lock:
            return (await self._exchange((command,), timeout_s))[0]

    async def call_all(self, commands: Sequence[Sequence[Argument]], *, timeout_s: float | None = None) -> list[Any]:
        """Sends commands at once over one connection and returns their replies.

        Raises as `call` does; some may have been done then.
        """
        async with self._lock:
            return await self._exchange(commands, timeout_s) if commands else []

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:  # noqa: ANN401 - as its header says
        """Runs a script by its SHA-1, or by its text when Redis does not know it yet. Raises as `call` does.

        One that only reads is called as such where Redis can tell (7.0): so its user need not be one who may write.
        """
        async with self._lock:  # over all, so that calls reach Redis in the order in which they were made
            if script.reads and self._tells_reads:
                try:
                    return await self._evaluate(script, "_RO", keys, args)
                except CommandUnknown:
                    self._tells_reads = False
            return await self._evaluate(script, "", keys, args)

    async def _evaluate(self, script: Script, form: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:  # noqa: ANN401
        try:
            return (await self._exchange(((f"EVALSHA{form}", script.sha, len(keys), *keys, *args),)))[0]
        except NoScriptError:
            return (await self._exchange(((f"EVAL{form}", script.text, len(keys), *keys, *args),)))[0]

    async def pop(self, key: str, timeout_s: float) -> bytes | None:
        """Pops the first element of a list, waiting for one at most `timeout_s` seconds (and at most BLOCK_S)."""
        timeout_s = max(0.01, min(timeout_s, BLOCK_S))
        reply = await self.call("BLPOP", key, f"{timeout_s:.3f}", timeout_s=timeout_s + BLOCK_MARGIN_S)
        return None if reply is None else reply[1]

    async def kill(self, other: Link) -> None:
        """Has Redis close the connections that another link left behind when it broke.

        Redis may not know yet that nobody reads there, and hand replies to it. The address stands beside the id
        because ids begin anew when Redis restarts. The connection that a link has now is never killed.
        """
        for left in list(other._left_behind):
            await self.call("CLIENT", "KILL", "ID", left[b"id"], "ADDR", left[b"addr"])
            if left in other._left_behind:  # kept until the kill has arrived, so that it can be tried again
                other._left_behind.remove(left)

    async def ping(self) -> None:
        """Asks Redis for a sign of life. Raises as `call` does."""
        await self.call("PING")

    async def unblock(self, other: Link) -> None:
        """Has another link's blocking read return at once, with nothing, if it is in one."""
        if other._identity:
            await self.call("CLIENT", "UNBLOCK", other._identity[b"id"])

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        await self._close()

    async def _exchange(self, commands: Sequence[Sequence[Argument]], timeout_s: float | None = None) -> list[Any]:
        """Raises NoScriptError as well."""
        try:
            wire = self._wire
            if wire is None or wire.lost:  # it broke while nobody used it, so nothing of anybody is lost with it
                wire = await self._open()
            replies = await wire.exchange_all(commands, self._timeout_s if timeout_s is None else timeout_s)
        except ResponseError as error:  # in connecting
            await self._close()
            raise _translated(f"{error.status_code or ''} {error}".strip()) from None
        except (RedisError, OSError, TimeoutError) as error:
            connecting = self._wire is None
            await self._close()
            raise RedisUnreachable(self._why(error, connecting=connecting)) from error
        except BaseException:
            await self._close()
            raise
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                if any(word in str(reply) for word in _ELSEWHERE):
                    await self._close()
                raise _translated(str(reply))
        return replies

    def _why(self, error: Exception, *, connecting: bool) -> str:
        """Returns why there is no answer."""
        if isinstance(error, AuthenticationError):
            return "Redis refuses the user or its password."
        if connecting and isinstance(self._connection, SSLConnection) and (wrong := trouble(error)) is not None:
            return f"There is no safe connection to Redis: {wrong}."
        return f"Redis did not answer ({type(error).__name__}): try again."

    async def _open(self) -> Wire:
        """Connects, and says and learns who this is. From there on redis-py has no part in it."""
        cancels = _cancels()
        if self._wire is not None:
            self._identity = {}  # nothing was asked over it, so Redis gives nothing to it: nobody need kill it
            await self._close()
        if isinstance(self._connection, SSLConnection):  # with a context that is new: redis-py reads the files once
            self._connection.ssl_context.context = await asyncio.to_thread(self._tls.context)  # the system's are many
        await self._connection.connect()
        if _cancels() > cancels:
            raise asyncio.CancelledError
        incoming, outgoing = self._connection._reader, self._connection._writer  # noqa: SLF001 - no other door
        if incoming is None or outgoing is None:
            raise ConnectionError("not connected")
        wire = Wire(cast("asyncio.Transport", outgoing.transport))
        if incoming.at_eof():  # Redis has hung up since, and asyncio's streams leave their own side open
            raise ConnectionError("not connected")
        if self._identified:
            info = await wire.exchange(("CLIENT", "INFO"), self._timeout_s)
            if isinstance(info, hiredis.ReplyError):
                raise ResponseError(str(info))
            self._identity = dict(part.split(b"=", 1) for part in info.split() if b"=" in part)
        self._wire = wire
        return wire

    async def _close(self) -> None:
        if self._identity:
            self._left_behind.append(self._identity)
            self._identity = {}
        self._wire = None
        await self._connection.disconnect(nowait=True)


def _cancels() -> int:
    """Counts cancels: redis-py sends within wait_for, which before Python 3.12 makes a task and may swallow them."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


_REPLIES: dict[str, type[Exception]] = {
    "NOSCRIPT": NoScriptError,
    "NOPERM": NotPermitted,
    "NOGROUP": GroupMissing,
    "UNBLOCKED the stream key": GroupMissing,
    "unknown command": CommandUnknown,
    "STALE": ScriptRefused,
}


def _translated(text: str) -> Exception:
    for words, kind in _REPLIES.items():
        if words in text:
            return kind(text)
    if any(word in text for word in _REFUSALS):
        return RedisUnreachable(f"Redis refuses to serve: {text[:120]}")
    return ResponseError(text)


class Queue:
    """One queue of the cluster, seen from one process.

    Args:
        settings: where Redis is, and how long to wait for it.
        name: the queue.
        client: what CLIENT LIST shows as the beginning of this process's connection names.
    """

    def __init__(self, settings: QueueSettings, name: str, client: str) -> None:
        self.keys = Keys(name)
        self.settings = settings
        self._client = client
        self._pool = ConnectionPool.from_url(
            settings.redis_url,
            protocol=2,
            decode_responses=False,
            socket_timeout=settings.redis_timeout_s,
            socket_connect_timeout=settings.redis_timeout_s,
            socket_keepalive=True,
            health_check_interval=0,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        self._links: list[Link] = []

    def link(self, purpose: str, *, identified: bool = False) -> Link:
        """Returns a new connection of this process, named `<client>:<purpose>`."""
        name = f"{self._client}:{purpose}"
        link = Link(self._pool, self.settings, name, identified=identified)
        self._links.append(link)
        return link

    async def close(self) -> None:
        """Closes every link."""
        for link in self._links:
            await link.close()
