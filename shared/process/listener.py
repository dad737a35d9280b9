"""The listening socket of a gateway, or the one that all gateways of `redbatch up` share; the limit on open files."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import socket

BACKLOG = 4_096
"""Maximum connections that wait to be accepted: Linux' default limit."""

PROBE_TIMEOUT_S = 5.0

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - recognized, not listened on


class ListenError(RuntimeError):
    """The process cannot listen on the address; the message says what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Binds the port and listens. Raises ListenError.

    All gateways share one socket: of two SO_REUSEPORT listeners, the one that closes loses the connections in its
    queue.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(_listen_error(host, port, error)) from None
    return listener


def _listen_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken: stop what listens there, or choose another with --port (0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs more permissions: choose one from 1024 upwards with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --host and --port"


def raise_open_file_limit() -> None:
    """Raises the soft limit of open files to the hard one: each connection of a client is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS reports no number; the current limit stays
        return


async def fetch_missing_parts(host: str, port: int) -> list[str] | None:
    """Reads the missing parts from GET /readyz: [] when ready, None while no gateway answers."""
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
    return _parse_readiness(answer)


def _parse_readiness(answer: bytes) -> list[str] | None:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"200"]:
        return []
    try:
        return [str(part) for part in json.loads(body)["missing"]]
    except (ValueError, KeyError, TypeError):
        return None
