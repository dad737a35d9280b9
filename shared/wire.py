"""The wire to Redis: one command out and its reply in, with no task and no stream between the socket and who waits.

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
        self._reply: asyncio.Future[Any] | None = None
        transport.set_protocol(self)

    @property
    def lost(self) -> bool:
        """Whether the connection is known to be lost."""
        return self._transport.is_closing()

    async def exchange(self, command: Command, timeout_s: float) -> Any:  # noqa: ANN401 - as the command has it
        """Sends a command and returns its reply, which may be a hiredis.ReplyError.

        After any error, a cancel too, the reply may still come: close the connection.

        Raises:
            ConnectionError: the connection is lost, or what came over it is no reply.
            TimeoutError: no reply came in time.
        """
        if self.lost:  # as early as while it was made, say: uvloop would raise RuntimeError
            raise ConnectionError("not connected")
        reply = self._reply = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._end, TimeoutError("no reply in time"))
        try:
            self._transport.write(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type]  # its stub: one item
            return await reply
        finally:
            timer.cancel()
            self._reply = None
            del reply  # an error that it holds refers to this frame

    def data_received(self, data: bytes) -> None:
        """Some of a reply has come."""
        try:
            self._reader.feed(data)
            reply = self._reader.gets()
        except hiredis.ProtocolError:
            self._end(ConnectionError("what came is no reply"))
            return
        if reply is _NOTHING:
            return
        if self._reply is None or self._reader.has_data():  # nobody asked, so nobody could tell whose the next one is
            self._transport.abort()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        """Redis has hung up, or this side has."""
        self._end(ConnectionError("the connection is lost"))

    def _end(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
