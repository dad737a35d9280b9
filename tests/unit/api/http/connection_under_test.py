"""A connection of a gateway whose transport only records what is called."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

import uvicorn

from api.http.client_connection import CLIENT, ClientConnection
from api.http.protocol import COMPLETE_BODY
from api.server import gateway_protocol
from api.settings import GatewaySettings

HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
TURNS = 50
"""More turns of the event loop than a request and its answer take."""


class RecordingTransport(asyncio.Transport):
    """A transport that records its calls.

    Args:
        sock: its socket, on which nothing is sent.

    Attributes:
        blocks: whether nothing that is written is sent.
        num_unsent: bytes that were written and not sent.
    """

    def __init__(self, sock: socket.socket | None = None) -> None:
        super().__init__({"socket": sock})
        self.calls: list[bytes | str] = []
        self.blocks, self.num_unsent = False, 0
        self._protocol: asyncio.BaseProtocol | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol | None) -> None:
        """Sets what is notified when writing has to pause; None once the connection is lost."""
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Writing pauses while anything is unsent."""
        assert (high, low) == (0, None)

    def get_write_buffer_size(self) -> int:
        """Returns the bytes that were written and not sent."""
        return self.num_unsent

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Records data that is written in one system call."""
        data = b"".join(list_of_data)
        self.calls.append(data)
        if self.blocks:
            self.num_unsent += len(data)
            assert self._protocol is not None
            self._protocol.pause_writing()

    def send_all(self) -> None:
        """Sends everything that was written."""
        self.blocks, self.num_unsent = False, 0
        assert self._protocol is not None
        self._protocol.resume_writing()

    def close(self) -> None:
        """Records the close."""
        self.calls.append("closed")

    def abort(self) -> None:
        """Records the end, after which nothing is written."""
        self.calls.append("aborted")

    def write_eof(self) -> None:
        """Records that nothing more will be written."""
        self.calls.append("ended")

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return not {"closed", "aborted"}.isdisjoint(self.calls)

    def pause_reading(self) -> None:
        """Records the pause."""
        self.calls.append("paused")

    def resume_reading(self) -> None:
        """Records the resumption."""
        self.calls.append("resumed")


class ConnectionUnderTest:
    """A connection whose application records the state of each request, and answers once `answers` is set."""

    def __init__(self, **settings: object) -> None:
        gateway_settings = GatewaySettings.model_validate(settings)
        config = uvicorn.Config(self._app, interface="asgi3", proxy_headers=False, log_config=None)
        config.load()
        self.clients: list[ClientConnection] = []
        self.outcomes: list[str] = []
        self.body_complete: list[bool] = []
        self.answers = asyncio.Event()
        self._socket = socket.socket()
        self.transport = RecordingTransport(self._socket)
        protocol = gateway_protocol(gateway_settings)
        self.protocol = protocol(config, uvicorn.Server(config).server_state, {}, asyncio.get_running_loop())
        self.transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)

    @property
    def num_head_bytes(self) -> int:
        """Bytes of heads that count for this connection."""
        return self.protocol._place.head_bytes

    async def _app(
        self,
        scope: dict[str, dict[str, object]],
        _receive: object,
        send: Callable[[dict[str, object]], Awaitable[None]],
    ) -> None:
        client = scope["state"][CLIENT]
        assert isinstance(client, ClientConnection)
        self.clients.append(client)
        self.body_complete.append(COMPLETE_BODY in scope["state"])
        client.watch()
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.outcomes.append("left" if client.gone else "cut off")
        else:
            self.outcomes.append("answered")
        client.unwatch()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.lose()

    async def lose(self, error: Exception | None = None) -> None:
        """Closes the connection as if its client had left."""
        self.protocol.connection_lost(error)
        self.transport.set_protocol(None)
        await asyncio.sleep(0.01)
        self._socket.close()

    async def receive(self, *parts: bytes) -> None:
        """Passes each part to the protocol, with time between them."""
        for part in parts:
            self.protocol.data_received(part)
            await self.wait(0.01)

    async def wait(self, time_s: float = 0.05) -> None:
        """Lets the event loop run for a time, and for many turns, of which a busy machine has few in a short time."""
        await asyncio.sleep(time_s)
        for _ in range(TURNS):
            await asyncio.sleep(0)
