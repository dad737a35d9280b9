"""A TCP proxy with the faults of networks: delays, silence, resets, and replies that never arrive."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self
from urllib.parse import urlsplit

import hiredis

CHUNK_BYTES = 65_536
SETNAME = re.compile(rb"SETNAME\r\n\$\d+\r\n([^\r]+)\r\n")


class ReplyAction(Enum):
    """What the proxy does with a reply."""

    PASS = "pass"
    DROP = "drop"
    """It is discarded; the connection stays open."""
    CUT = "cut"
    """The client's connection is reset instead."""
    ORPHAN = "orphan"
    """The same, but Redis' side of the connection stays open."""


@dataclass(eq=False)
class _Pair:
    """The two sides of one proxied connection."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    name: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class FaultProxy:
    """Forwards connections of clients to the Redis at `upstream_url`; each may have one call in flight at a time.

    Attributes:
        delay_s: returns the delay of a reply, in seconds; called before each reply is forwarded.
        reply_action: returns the action for a reply, given the name of its connection in Redis.
        should_cut: whether a connection is reset before a request arrives, given the connection's name in Redis.
        silent: while it is set, everything is discarded in both directions.
        replies: the number of replies of Redis.
    """

    def __init__(self, upstream_url: str) -> None:
        self.lead_to(upstream_url)
        url = urlsplit(upstream_url)
        self._user = f"{url.username}:{url.password}@" if url.username else ""
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._actions: list[ReplyAction] = []
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.reply_action: Callable[[str], ReplyAction] = lambda _name: ReplyAction.PASS
        self.should_cut: Callable[[str], bool] = lambda _name: False
        self.silent = False
        self.replies = 0

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        assert self._server is not None
        return f"redis://{self._user}127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def lead_to(self, upstream_url: str) -> None:
        """Leads new connections to another Redis; old ones stay where they are."""
        url = urlsplit(upstream_url)
        self._upstream = (url.hostname or "127.0.0.1", url.port or 6379)

    def set_next_actions(self, *actions: ReplyAction) -> None:
        """Sets the actions for the next replies, in order; for the replies after them `reply_action` decides."""
        self._actions = list(actions)

    def cut(self, *, orphan: bool = False) -> None:
        """Resets every client's connection now; with `orphan`, Redis' side stays open."""
        for pair in list(self._pairs):
            self._cut(pair, orphan=orphan)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        for pair in list(self._pairs):
            for task in pair.tasks:
                task.cancel()
            await asyncio.gather(*pair.tasks, return_exceptions=True)
            pair.client.close()
            pair.server.close()
        self._pairs.clear()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, server_writer)
        self._pairs.add(pair)
        pair.tasks.append(asyncio.create_task(self._requests(reader, pair)))
        pair.tasks.append(asyncio.create_task(self._replies(server_reader, pair)))

    async def _requests(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if match := SETNAME.search(chunk):
                    pair.name = match[1].decode()
                elif pair.name and self.should_cut(pair.name):
                    self._cut(pair, orphan=False)
                    return
                if not self.silent:
                    pair.server.write(chunk)
            if not pair.client.transport.is_closing():
                pair.server.close()
                pair.client.close()
                self._pairs.discard(pair)

    async def _replies(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while reply := await self._whole_reply(reader):
                action = self._next_action(pair.name)
                delay = self.delay_s()
                if delay > 0:
                    await asyncio.sleep(delay)
                self.replies += 1
                if action in (ReplyAction.CUT, ReplyAction.ORPHAN):
                    self._cut(pair, orphan=action is ReplyAction.ORPHAN)
                elif action is ReplyAction.PASS and not self.silent and not pair.client.transport.is_closing():
                    pair.client.write(reply)
            pair.client.close()
            pair.server.close()
            self._pairs.discard(pair)

    def _next_action(self, name: str) -> ReplyAction:
        """Returns the action for the next reply. Until a connection has a name, replies pass: its user logs in."""
        if not name:
            return ReplyAction.PASS
        return self._actions.pop(0) if self._actions else self.reply_action(name)

    @staticmethod
    async def _whole_reply(reader: asyncio.StreamReader) -> bytes:
        """Reads until no reply is incomplete: Redis 6.2 writes the reply of a script in pieces."""
        parser, data = hiredis.Reader(), b""
        while chunk := await reader.read(CHUNK_BYTES):
            data += chunk
            parser.feed(chunk)
            while parser.gets() is not False:
                if not parser.has_data():
                    return data
        return b""

    def _cut(self, pair: _Pair, *, orphan: bool) -> None:
        if not pair.client.transport.is_closing():
            sock = pair.client.transport.get_extra_info("socket")
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # a reset, not an orderly close
        pair.client.transport.abort()
        if not orphan:
            pair.server.close()
            self._pairs.discard(pair)
