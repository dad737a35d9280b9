"""The wire to Redis: commands out and their replies in, with no task and no stream between the socket and who waits.

A reply wakes its caller in the turn of the event loop in which it came. Through a stream that takes one turn more, and
half as much CPU again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import hiredis

Command = Sequence[str | bytes | int | float]

_NOTHING = object()


class Wire(asyncio.Protocol):
    """Speaks over a connection that is open and has nothing on its way: commands and replies take turns.

    Args:
        transport: the connection; its protocol becomes this one.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._replies: list[Any] = []
        self._awaited = 0
        self._answered: asyncio.Future[list[Any]] | None = None
        transport.set_protocol(self)

    @property
    def lost(self) -> bool:
        """Whether the connection is known to be lost."""
        return self._transport.is_closing()

    async def exchange(self, command: Command, timeout_s: float) -> Any:  # noqa: ANN401 - as the command has it
        """Sends a command and returns its reply. Raises as `exchange_all` does."""
        return (await self.exchange_all((command,), timeout_s))[0]

    async def exchange_all(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Sends commands and returns their replies, each of which may be a hiredis.ReplyError.

        After any error, a cancel too, some of the replies may still come: close the connection.

        Raises:
            ConnectionError: the connection is lost, or what came over it is no reply.
            TimeoutError: not all replies came in time.
        """
        if self.lost:  # as early as while it was made, say: uvloop would raise RuntimeError
            raise ConnectionError("not connected")
        answered: asyncio.Future[list[Any]] = self._loop.create_future()
        self._answered = answered
        self._replies, self._awaited = [], len(commands)
        timer = self._loop.call_later(timeout_s, self._end, TimeoutError("no reply in time"))
        try:
            self._transport.write(b"".join([_packed(each) for each in commands]))
            return await answered
        finally:
            timer.cancel()
            self._answered, self._replies, self._awaited = None, [], 0
            del answered  # an error that it holds refers to this frame

    def data_received(self, data: bytes) -> None:
        """Some of a reply has come."""
        try:
            self._reader.feed(data)
            while len(self._replies) < self._awaited:
                reply = self._reader.gets()
                if reply is _NOTHING:
                    return
                self._replies.append(reply)
        except hiredis.ProtocolError:
            self._end(ConnectionError("what came is no reply"))
            return
        if (
            self._answered is None or self._reader.has_data()
        ):  # nobody asked, so nobody could tell whose the next one is
            self._transport.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(self._replies)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        """Redis has hung up, or this side has."""
        self._end(ConnectionError("the connection is lost"))

    def _end(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


def _packed(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub has a tuple of one item
    return packed
