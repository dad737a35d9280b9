"""A transport that writes the head and the body of an answer at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.flow_control import FlowControl

    from api.http.unanswered_requests import UnansweredRequests
    from api.http.unsent_limiter import UnsentLimiter


class CoalescingTransport:
    """A transport that joins writes until `flush`, or until the end of this iteration of the event loop.

    uvloop's transport writes immediately: an answer then takes two system calls, two packets, and two reads by the
    client.

    Args:
        transport: takes the joined writes; it pauses writing while anything is unsent.
        loop: the event loop.
        flow: whether writing is paused.
        unsent: gets the number of bytes of each write of which not all are sent at once.
        requests: of the connection, one of which is being answered.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        flow: FlowControl,
        unsent: UnsentLimiter,
        requests: UnansweredRequests,
    ) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # called several times for each request: `__getattr__` takes longer
        self._loop = loop
        self._flow, self._unsent, self._requests = flow, unsent, requests
        self._pending: list[bytes] = []
        self._drops_writes = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes are the transport's
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes the data at the next flush."""
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def add(self, *parts: bytes) -> None:
        """Writes these parts at the next flush, which the caller must call: to schedule one costs an iteration."""
        self._pending += parts

    def flush(self) -> None:
        """Writes all pending data now."""
        if self._pending:
            pending, self._pending = self._pending, []
            if not self._drops_writes:
                self._transport.writelines(pending)
                if self._flow.write_paused:
                    self._unsent.add(self._transport, self._requests.running_scope, sum(map(len, pending)))

    async def drain(self) -> None:
        """Writes all pending data, and waits until it is sent or the connection is lost."""
        self.flush()
        await self._flow.drain()

    def close(self) -> None:
        """Writes all pending data, then closes."""
        self.flush()
        self._transport.close()

    def drop_writes(self) -> None:
        """Drops all further writes, after the connection or its sending side is closed: they would raise an error."""
        self._drops_writes = True
