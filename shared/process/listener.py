"""The listening socket of a gateway, or the one that all gateways of `redbatch up` accept from."""

from __future__ import annotations

import asyncio
import errno
import json
import socket

from redbatch.urls import WILDCARDS

BACKLOG = 4_096
"""Connections that may wait to be accepted: as many as Linux allows by default."""

PROBE_TIMEOUT_S = 5.0


class ListenError(RuntimeError):
    """The address cannot be listened on; the message says what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Binds the port and listens. Raises ListenError.

    One socket for all gateways: of two SO_REUSEPORT listeners, the one that closes loses the connections in its queue.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(_advice(host, port, error)) from None
    return listener


def _advice(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken: stop what listens there, or choose another with --port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than you have: choose one from 1024 on with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --host and --port"


async def missing_parts(host: str, port: int) -> list[str] | None:
    """Asks GET /readyz what is missing: [] when ready, None when no gateway answers yet."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(WILDCARDS.get(host, host), port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return _parsed(answer)


def _parsed(answer: bytes) -> list[str] | None:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"200"]:
        return []
    try:
        return [str(part) for part in json.loads(body)["missing"]]
    except (ValueError, KeyError, TypeError):
        return None
