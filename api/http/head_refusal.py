"""The answer to a head that exceeds its limits: it is written below the application, which sees whole heads only."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api.http.early_error import early_error
from shared.errors import RedbatchError

LINGER_S = 1.0
MAX_LINGER_BYTES = 256 * 2**10


class HeadRefusal:
    """Refuses a head and closes the connection, but not at once (RFC 9112, 9.6): see LingeringCloseResponse.

    Args:
        transport: of the connection.
        error: what is answered.
        client: the client's address, for the log.
    """

    def __init__(self, transport: asyncio.Transport, error: RedbatchError, client: str) -> None:
        self._transport = transport
        self._num_dropped_bytes = 0
        answer = early_error(error, client)
        fields = [b"%b: %b\r\n" % field for field in answer.fields]
        transport.writelines([STATUS_LINE[answer.status], *fields, b"\r\n", answer.body])
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def drop(self, num_bytes: int) -> None:
        """Notes that bytes have arrived after the answer; a client that goes on sending is cut off."""
        self._num_dropped_bytes += num_bytes
        if self._num_dropped_bytes > MAX_LINGER_BYTES:
            self._transport.abort()
