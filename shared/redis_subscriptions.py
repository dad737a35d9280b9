"""Subscribes to sentinels, which announce at once that a master has another address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from shared.redis_survey import set_tls_context
from shared.redis_topology import SWITCH_CHANNEL, switched_to
from shared.redis_url import Address, RedisUrl
from shared.tls import Tls

log = structlog.get_logger()

PING_AFTER_S = 60.0
"""After this time without a message, a PING shows whether the connection still leads to the sentinel."""

RETRY_S = 2.0
"""Until the next attempt to connect to a sentinel."""


class SentinelSubscriptions:
    """A subscription to each of the sentinels of a URL.

    Args:
        url: with the sentinels and the master's name.
        connect: returns a new connection to a sentinel, not open yet.
        tls: read again for each connection that is opened.
    """

    def __init__(self, url: RedisUrl, connect: Callable[[Address], AbstractConnection], tls: Tls) -> None:
        self._url = url
        self._connect = connect
        self._tls = tls
        self._has_warned = False

    async def run(self, on_switch: Callable[[Address], None]) -> None:
        """Calls `on_switch` with the new address each time that a sentinel announces one; until cancelled."""
        async with asyncio.TaskGroup() as group:
            for node in self._url.nodes:
                group.create_task(self._subscribe(node, on_switch))

    async def _subscribe(self, node: Address, on_switch: Callable[[Address], None]) -> NoReturn:
        while True:
            connection = self._connect(node)
            try:
                await set_tls_context(connection, self._tls)
                await connection.connect()
                await connection.send_command("SUBSCRIBE", SWITCH_CHANNEL)
                while True:
                    if (address := switched_to(await _next_message(connection), self._url.master)) is not None:
                        on_switch(address)
            except ResponseError as error:
                self._warn_once(node, error)
            except (RedisError, OSError, RuntimeError):  # RuntimeError: of uvloop, if the connection is reset early
                pass  # if no sentinel can be reached, the regular question to all of them says so
            finally:
                await connection.disconnect(nowait=True)
            await asyncio.sleep(RETRY_S)

    def _warn_once(self, node: Address, error: ResponseError) -> None:
        if not self._has_warned:
            self._has_warned = True
            message = "a sentinel announces no new master to this process, which will notice it up to a second later"
            log.warning(message, sentinel=str(node), reason=str(error))


async def _next_message(connection: AbstractConnection) -> Any:  # noqa: ANN401 - as redis-py reads it
    """Returns what a sentinel sends next. Raises TimeoutError: it does not even answer a PING."""
    for _ in range(2):
        message = await connection.read_response(timeout=PING_AFTER_S)
        if message is not None:  # redis-py returns None when the time is over
            return message
        await connection.send_command("PING")
    raise TimeoutError
