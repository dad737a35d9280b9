"""The answer to a head that exceeds its limits: it is written below the application, which sees whole heads only."""

from __future__ import annotations

import asyncio
import logging
import secrets

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api import metrics
from api.errors import error_body, status_of
from shared.errors import RedbatchError
from shared.process.limited_log import LimitedLog

LINGER_S = 1.0
MAX_LINGER_BYTES = 256 * 2**10

limited_log = LimitedLog()


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
        status, request_id = status_of(error), secrets.token_hex(16)
        details = {"message": error.log_message, "client": client, "request_id": request_id}
        limited_log.write(logging.INFO, "request refused", lambda: details, status=status, code=error.code)
        metrics.ERRORS.labels("", error.code).inc()
        body = error_body(error.code, error.message, request_id)
        fields = b"content-type: application/json\r\nx-request-id: %s\r\nconnection: close\r\n" % request_id.encode()
        transport.writelines([STATUS_LINE[status], fields, b"content-length: %d\r\n\r\n" % len(body), body])
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def drop(self, num_bytes: int) -> None:
        """Notes that bytes have arrived after the answer; a client that goes on sending is cut off."""
        self._num_dropped_bytes += num_bytes
        if self._num_dropped_bytes > MAX_LINGER_BYTES:
            self._transport.abort()
