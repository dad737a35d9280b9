"""Asks several servers the same question at once: some may be away, hang, or know what is no longer so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from shared.errors import RedisUnreachableError
from shared.redis_url import Address
from shared.tls import Tls, describe_tls_error

LATE_S = 0.05
"""How long further answers are waited for after the first one: a server that hangs must not delay those of others."""


class Survey:
    """Servers that are queried the same question at once, over connections that stay open.

    Args:
        connect: returns a new connection to a server, not open yet.
        tls: read again for each connection that is opened.
        timeout_s: for a server to be connected to and to answer.
    """

    def __init__(self, connect: Callable[[Address], AbstractConnection], tls: Tls, timeout_s: float) -> None:
        self._connect = connect
        self._tls = tls
        self._timeout_s = timeout_s
        self._connections: dict[Address, AbstractConnection] = {}

    async def ask(self, nodes: Sequence[Address], questions: Sequence[Sequence[str]]) -> dict[Address, list[Any]]:
        """Returns the replies to all questions that come in time, by server.

        Raises RedisUnreachableError: there is none; if all refuse to answer, the error says so.
        """
        for node in self._connections.keys() - set(nodes):  # it is not a server any more, or others are queried now
            await self._connections.pop(node).disconnect(nowait=True)
        asking = {asyncio.create_task(self._ask(node, questions)): node for node in nodes}
        pending: set[asyncio.Task[Any]] = set(asking)
        until = asyncio.get_running_loop().time() + self._timeout_s
        try:
            while pending and (left_s := until - asyncio.get_running_loop().time()) > 0:
                done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if any(task.exception() is None for task in done):
                    _, pending = await asyncio.wait(pending, timeout=LATE_S) if pending else (done, pending)
                    break
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
        ended = [task for task in asking if not task.cancelled()]
        if replies := {asking[task]: task.result() for task in ended if task.exception() is None}:
            return replies
        errors = [error for task in ended if (error := task.exception()) is not None]
        has_tls = any(isinstance(each, SSLConnection) for each in self._connections.values())
        raise _describe_silence(nodes, errors, has_tls=has_tls)

    async def _ask(self, node: Address, questions: Sequence[Sequence[str]]) -> list[Any]:
        if (connection := self._connections.get(node)) is None:
            connection = self._connections[node] = self._connect(node)
        if connection.is_connected:
            try:
                return await self._exchange(connection, questions)
            except ResponseError:
                raise
            except (RedisError, OSError):  # it has been closed since the last question
                pass
        await set_tls_context(connection, self._tls)
        return await self._exchange(connection, questions)

    @staticmethod
    async def _exchange(connection: AbstractConnection, questions: Sequence[Sequence[str]]) -> list[Any]:
        try:
            await connection.connect()
            replies = []
            for question in questions:
                await connection.send_command(*question)
                replies.append(await connection.read_response())
            return replies
        except ResponseError:
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            await connection.disconnect(nowait=True)


def _describe_silence(
    nodes: Sequence[Address], errors: Sequence[BaseException], *, has_tls: bool
) -> RedisUnreachableError:
    """Returns the error for a question that no server has answered."""
    for each in errors:
        if isinstance(each, RedisUnreachableError):  # the password cannot be read
            return each
        if has_tls and (problem := describe_tls_error(each)) is not None:
            return RedisUnreachableError(f"There is no safe connection to {nodes[0]}: {problem}.")
    where = ", ".join(map(str, nodes))
    refusals = [each for each in errors if isinstance(each, (ResponseError, AuthenticationError))]
    if refusals:
        error = RedisUnreachableError(f"Where Redis is cannot be found out ({where}): {refusals[0]}.")
        error.is_refused = len(refusals) == len(nodes)
        return error
    reason = f" ({type(errors[0]).__name__})" if errors else ""
    return RedisUnreachableError(f"None of {where} says where Redis is{reason}: try again.")


async def set_tls_context(connection: AbstractConnection, tls: Tls) -> None:
    """Has a connection use the files as they are now: redis-py reads them only once."""
    if isinstance(connection, SSLConnection):
        # In a thread, because reading the system's many certificates takes time.
        connection.ssl_context.context = await asyncio.to_thread(tls.context)
