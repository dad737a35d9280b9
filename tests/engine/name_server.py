"""A name server that knows no name, as that of a machine knows none of a Swarm's tasks."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shared.process.parent_death import wrap_command

ADDRESS = "127.0.0.1"
MAX_BYTES = 4_096
NO_SUCH_NAME = 3
"""RCODE of RFC 1035, 4.1.1."""


@contextmanager
def name_server(namespace: str) -> Iterator[None]:
    """Runs one on the loopback address of a network namespace, for the time of the block."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", __name__]
    process = subprocess.Popen(wrap_command(command, signal.SIGTERM))
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def answer(query: bytes) -> bytes:
    """Returns the answer to a query: there is no such name."""
    recursion_desired = query[2] & 1
    flags = bytes([0x80 | recursion_desired, 0x80 | NO_SUCH_NAME])
    end = query.index(b"\0", 12) + 5  # of the question: its name, type and class
    return query[:2] + flags + query[4:6] + bytes(6) + query[12:end]


def main() -> None:
    """Answers until it is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((ADDRESS, 53))
        while True:
            query, client = server.recvfrom(MAX_BYTES)
            server.sendto(answer(query), client)


if __name__ == "__main__":
    main()
