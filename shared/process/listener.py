"""The listening socket of a gateway, or the one that all gateways of `redbatch up` share; the limit on open files."""

from __future__ import annotations

import errno
import resource
import socket
import sys
from ipaddress import ip_address

BACKLOG = 4_096
"""Maximum connections that wait to be accepted: Linux' default limit."""

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


def max_open_files() -> int:
    """Returns the limit of open files of this process; sys.maxsize if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
