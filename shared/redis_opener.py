"""Opens a connection to Redis: finds the server, connects, logs in and sends the name. That is all of redis-py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError
from redis.maint_notifications import MaintNotificationsConfig

from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.redis_locator import ClusterLocator, FixedLocator, Locator, SentinelLocator
from shared.redis_password import read_password
from shared.redis_subscriptions import SentinelSubscriptions
from shared.redis_survey import Survey, set_tls_context
from shared.redis_topology import moved_to, slot_of
from shared.redis_url import Address, Kind, parse_url
from shared.redis_wire import Wire, system_reason
from shared.settings import QueueSettings
from shared.tls import describe_tls_error


class PasswordFile(CredentialProvider):
    """Reads the password of a user from a file, each time that a connection logs in."""

    def __init__(self, path: str, user: str) -> None:
        self._path = path
        self._user = user

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Returns the user, if there is one, and the password. Raises RedisUnreachableError."""
        try:
            password = await asyncio.to_thread(read_password, self._path)
        except ValueError as error:
            raise RedisUnreachableError(f"The file with the password of Redis: {error}.") from None
        return (self._user, password) if self._user else (password,)


MAX_CHECK_S = 0.3
"""How long a call over an open connection may be delayed to find out whether it leads to the right server."""


class ConnectionSource:
    """Makes the connections of one process to one queue, and knows where its Redis is.

    Args:
        settings: with the URL of Redis.
        keys: of the queue.

    Attributes:
        is_cluster: whether keys of several queues are on several servers.
        locator: finds the server of the queue.
    """

    def __init__(self, settings: QueueSettings, keys: Keys) -> None:
        self._settings = settings
        self.tls = settings.redis_tls
        url = parse_url(settings.redis_url)
        self.is_cluster = url.kind is Kind.CLUSTER
        self._options: dict[str, Any] = {
            "protocol": 2,
            "decode_responses": False,
            "socket_timeout": settings.redis_timeout_s,
            "socket_connect_timeout": settings.redis_timeout_s,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        if url.nodes:  # redis-py refuses it for the socket of a file
            self._options["socket_keepalive"] = True
        self._pool = ConnectionPool.from_url(url.server_url, **self._options)
        if settings.redis_password_file is not None:
            user = self._pool.connection_kwargs.pop("username", "")
            self._pool.connection_kwargs["credential_provider"] = PasswordFile(settings.redis_password_file, user)
        self.locator: Locator = FixedLocator()
        if url.kind is Kind.SENTINEL:
            survey = Survey(self._connect_sentinel, self.tls, settings.redis_timeout_s)
            self.locator = SentinelLocator(url, survey, SentinelSubscriptions(url, self._connect_sentinel, self.tls))
        elif url.kind is Kind.CLUSTER:
            self.locator = ClusterLocator(
                url, slot_of(keys.tag or keys.queue), Survey(self._connect_server, self.tls, settings.redis_timeout_s)
            )

    def make_connection(self) -> AbstractConnection:
        """Returns a connection that is not open yet."""
        return cast("AbstractConnection", self._pool.make_connection())

    def _connect_server(self, address: Address) -> AbstractConnection:
        connection = self.make_connection()
        _lead_to(connection, address)
        return connection

    def _connect_sentinel(self, address: Address) -> AbstractConnection:
        password = self._settings.redis_sentinel_password
        is_safe = issubclass(self._pool.connection_class, SSLConnection)
        return (SSLConnection if is_safe else Connection)(
            host=address.host, port=address.port, password=password or None, **self._options
        )


def _lead_to(connection: AbstractConnection, address: Address) -> None:
    if isinstance(connection, Connection):  # one of a socket has no host
        connection.host, connection.port = address


class RedisOpener:
    """Opens one connection to Redis, again and again.

    Args:
        source: makes connections, with their options.
        name: shown by CLIENT LIST.
        roams: whether it goes where Redis sends it, not to the server of the queue: for keys that several queues share.
    """

    def __init__(self, source: ConnectionSource, name: str, *, roams: bool) -> None:
        self._source = source
        self._connection = source.make_connection()
        self._connection.client_name = name
        self._roams = roams
        self._address: Address | None = None

    async def open(self) -> Wire:
        """Connects and sends the name. Raises RedisUnreachableError, an error of redis-py, OSError or TimeoutError."""
        num_cancellations = _num_cancellations()
        locator = self._source.locator
        if not (self._roams and self._address):
            self._address = None  # until it is found, no announcement of a master concerns this connection
            self._address = await locator.locate()
        if self._address is not None:
            _lead_to(self._connection, self._address)
        await set_tls_context(self._connection, self._source.tls)
        try:
            await self._connection.connect()
        except RuntimeError as error:  # of uvloop, if the connection is reset before redis-py has sent its commands
            raise ConnectionError("not connected") from error
        if _num_cancellations() > num_cancellations:
            raise asyncio.CancelledError
        incoming, outgoing = self._connection._reader, self._connection._writer  # noqa: SLF001 - there is no public access
        if incoming is None or outgoing is None:
            raise ConnectionError("not connected")
        wire = Wire(cast("asyncio.Transport", outgoing.transport))
        if incoming.at_eof():  # Redis has closed it since, and asyncio's streams leave their own side open
            raise ConnectionError("not connected")
        return wire

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        await self._connection.disconnect(nowait=True)

    @property
    def server(self) -> str:
        """Host and port of the server that was found; empty if it is that of the URL."""
        return "" if self._address is None else str(self._address)

    def redirect(self, reply: str) -> bool:
        """Whether an error reply names the server that has the key: the next connection leads there."""
        if self._address is None:
            return False
        if not self._roams:
            return self._source.locator.redirect(reply, self._address)
        if (address := moved_to(reply, self._address)) is not None:
            self._address = address
        return address is not None

    def look_again(self) -> None:
        """Has the next connection ask where the server is: there is none, or not the right one, at this address."""
        self._address = None
        self._source.locator.forget()

    async def find_master(self) -> Address | None:
        """Returns where the server is now; None if no sentinel says so soon, while Redis may answer."""
        locator = self._source.locator
        if not locator.watches:
            return None
        try:
            async with asyncio.timeout(MAX_CHECK_S):
                return await locator.locate()
        except (RedisUnreachableError, TimeoutError):
            return None

    def describe_failure(self, error: Exception, *, connecting: bool) -> str:
        """Returns the reason why there is no reply."""
        if isinstance(error, AuthenticationError):
            return "Redis refuses the user or its password."
        if (
            connecting
            and isinstance(self._connection, SSLConnection)
            and (problem := describe_tls_error(error)) is not None
        ):
            return f"There is no safe connection to Redis: {problem}."
        reason = system_reason(error) if connecting else ""
        return f"Redis did not answer ({type(error).__name__}{reason}): try again."


def _num_cancellations() -> int:
    """Counts cancellations: redis-py sends in wait_for, which before Python 3.12 runs a task and may swallow them."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
