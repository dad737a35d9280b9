"""The answer to a head over its limits: it is written below the application, which sees whole heads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from api.http.coalescing_transport import CoalescingTransport
    from api.http.early_error import EarlyError

LINGER_S = 1.0
MAX_LINGER_BYTES = 256 * 2**10


class HeadRefusal:
    """Refuses a head and closes the connection, but not at once (RFC 9112, 9.6): see LingeringCloseResponse.

    Args:
        transport: of the connection; nothing else is written to it.
        answer: the refusal.
    """

    def __init__(self, transport: CoalescingTransport, answer: EarlyError) -> None:
        self._transport = transport
        self._num_dropped_bytes = 0
        fields = [b"%b: %b\r\n" % field for field in answer.fields]
        transport.flush()
        transport.writelines([STATUS_LINE[answer.status], *fields, b"\r\n", answer.body])
        transport.write_eof()
        transport.drop_writes()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def cancel(self) -> None:
        """The connection is closed: its transport need not stay in memory."""
        self._timer.cancel()

    def drop(self, num_bytes: int) -> None:
        """Notes that bytes have arrived after the answer; a client that goes on sending is cut off."""
        self._num_dropped_bytes += num_bytes
        if self._num_dropped_bytes > MAX_LINGER_BYTES:
            self._transport.abort()
