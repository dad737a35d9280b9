"""The worker's end of the socket to its engine, in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from gpuworker.ipc import framing
from gpuworker.ipc.messages import Message


class FrameProtocol(asyncio.Protocol):
    """The worker's end of the socket: each frame is handled when it arrives, without a task in between.

    Attributes:
        ended: done when the engine is gone; holds the error if a frame could not be handled.
    """

    def __init__(self, handle: Callable[[Message, bytes], None], ended: asyncio.Future[None]) -> None:
        self._handle = handle
        self._reader = framing.FrameReader()
        self._transport: asyncio.Transport | None = None
        self.ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handles the frames that are complete."""
        try:
            for frame in self._reader.feed(data):
                self._handle(*frame)
        except Exception as error:  # noqa: BLE001 - the task that waits for the end raises it
            if not self.ended.done():
                self.ended.set_exception(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the end of a killed engine is an end like any other
        """Reports that the engine is gone."""
        if not self.ended.done():
            self.ended.set_result(None)

    def write(self, data: bytes) -> None:
        """Writes soon. Drops data for an engine that has died, whose end may not have been read yet."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Closes the socket."""
        if self._transport is not None:
            self._transport.close()
