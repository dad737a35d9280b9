"""The wire to Redis: sends commands and reads replies, with no task and no stream between the socket and the caller.

A reply wakes its caller in the same iteration of the event loop in which it arrives. A stream takes one iteration more,
and half as much CPU again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import hiredis

from shared.home import Server, parse_server

Command = Sequence[str | bytes | int | float]

IDENTITY = (("INFO", "server"), ("INFO", "replication"))
"""Commands whose replies say which Redis this is."""

CLOCK_STEP_S = 0.001
"""Resolution of uvloop's clock and timers: one may fire this much too early."""

_INCOMPLETE = object()


class Wire(asyncio.Protocol):
    """Speaks over a connection that is open and has no reply outstanding: commands and replies take turns.

    Args:
        transport: the connection; its protocol becomes this one.

    Attributes:
        answered_at: when the last exchange ended with all replies (event loop's clock), or this wire was made.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._replies: list[Any] = []
        self._num_expected = 0
        self._reply_future: asyncio.Future[list[Any]] | None = None
        self._deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.answered_at = self._loop.time()
        transport.set_protocol(self)

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be lost."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Resets the connection; a pending exchange raises ConnectionError."""
        self._transport.abort()

    async def exchange_all(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Sends commands and returns their replies, each of which may be a hiredis.ReplyError.

        After any error, including a cancellation, some of the replies may still come: close the connection.

        Raises:
            ConnectionError: the connection is lost, or the data received is not a reply.
            TimeoutError: not all replies came in time.
        """
        if self.is_lost:  # maybe while it was still being opened: uvloop would raise RuntimeError
            raise ConnectionError("not connected")
        reply_future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._reply_future = reply_future
        self._replies, self._num_expected = [], len(commands)
        self._set_deadline(self._loop.time() + timeout_s)
        try:
            self._transport.write(b"".join([_pack(each) for each in commands]))
            replies = await reply_future
            self.answered_at = self._loop.time()
            return replies
        finally:
            self._reply_future, self._replies, self._num_expected = None, [], 0
            del reply_future  # an exception in the future refers to this frame

    def data_received(self, data: bytes) -> None:
        """Parses a part of a reply."""
        try:
            self._reader.feed(data)
            while len(self._replies) < self._num_expected:
                reply = self._reader.gets()
                if reply is _INCOMPLETE:
                    return
                self._replies.append(reply)
        except hiredis.ProtocolError:
            self._fail(ConnectionError("the data received is no reply"))
            return
        if self._reply_future is None or self._reader.has_data():
            self._transport.abort()  # an unrequested reply: the following replies could not be assigned to their calls
        if self._reply_future is not None and not self._reply_future.done():
            self._reply_future.set_result(self._replies)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        """Fails the pending exchange: Redis, or this side, has closed the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._fail(ConnectionError("the connection is lost"))

    def _set_deadline(self, deadline: float) -> None:
        """Bounds the exchange that begins. Its timer may be that of an earlier one: few ever fire, and each costs."""
        self._deadline = deadline
        if self._timer is None or deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(deadline, self._check_deadline), deadline

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reply_future is None:
            return
        if self._loop.time() < self._deadline - CLOCK_STEP_S:
            self._set_deadline(self._deadline)
        else:
            self._fail(TimeoutError("no reply in time"))

    def _fail(self, error: Exception) -> None:
        if self._reply_future is not None and not self._reply_future.done():
            self._reply_future.set_exception(error)


async def read_identity(wire: Wire, timeout_s: float, *, with_client: bool) -> tuple[Server | None, Any]:
    """Reads to which Redis a connection leads and, if requested, the reply to CLIENT INFO, in one round trip.

    Raises as `exchange_all` does.
    """
    questions = (*IDENTITY, ("CLIENT", "INFO")) if with_client else IDENTITY
    replies = await wire.exchange_all(questions, timeout_s)
    return parse_identity(replies[: len(IDENTITY)]), replies[len(IDENTITY)] if with_client else b""


def parse_identity(replies: Sequence[Any]) -> Server | None:
    """Returns which Redis has sent replies to IDENTITY; None if it does not let this user know."""
    if any(isinstance(each, hiredis.ReplyError) for each in replies):
        return None
    return parse_server(b"".join(replies))


def system_reason(error: BaseException | None) -> str:
    """Returns why a connection was not made, as the system says it, after a colon; empty if it does not."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and error.strerror:
            return f": {os.strerror(error.errno) if error.errno > 0 else error.strerror}"
        error = error.__cause__ or error.__context__
    return ""


def _pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub declares a tuple of one item
    return packed
