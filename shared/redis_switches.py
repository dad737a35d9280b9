"""Hears from sentinels at once that a master has another address; otherwise it would be known at the next question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from shared.errors import RedisUnreachableError
from shared.redis_survey import set_tls_context
from shared.redis_topology import SWITCH_CHANNEL, switched_to
from shared.redis_url import Address, RedisUrl
from shared.tls import Tls

log = structlog.get_logger()

MAX_SILENCE_S = 60.0
"""A connection on which nothing has arrived for this long is opened again: it may lead nowhere."""

RETRY_S = 2.0
"""Until the next attempt to connect to a sentinel. Meanwhile the others are heard, and all are queried each second."""


class SentinelSwitches:
    """Subscribes to the sentinels of a URL.

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

    async def follow(self, on_switch: Callable[[Address], None]) -> None:
        """Calls `on_switch` with the new address each time that a sentinel names one; until cancelled."""
        await asyncio.gather(*(self._follow(node, on_switch) for node in self._url.nodes))

    async def _follow(self, node: Address, on_switch: Callable[[Address], None]) -> NoReturn:
        while True:
            connection = self._connect(node)
            try:
                await set_tls_context(connection, self._tls)
                await connection.connect()
                await connection.send_command("SUBSCRIBE", SWITCH_CHANNEL)
                await connection.read_response()
                while True:
                    message = await connection.read_response(timeout=MAX_SILENCE_S)
                    if (address := switched_to(message, self._url.master)) is not None:
                        on_switch(address)
            except ResponseError as error:
                self._warn_once(node, error)
            except (RedisError, OSError, TimeoutError, RedisUnreachableError):
                pass  # where sentinels are needed, and none answers, the question to all of them says so
            finally:
                await connection.disconnect(nowait=True)
            await asyncio.sleep(RETRY_S)

    def _warn_once(self, node: Address, error: ResponseError) -> None:
        if not self._has_warned:
            self._has_warned = True
            message = "a sentinel announces no new master to this process, which will notice it up to a second later"
            log.warning(message, sentinel=str(node), reason=str(error))
