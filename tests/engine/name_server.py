"""A name server that knows no name, as that of a machine knows none of a Swarm's tasks.

An engine asks it for the name of a task that is gone. On a network that is internal, Docker 20.10 reaches it only on
the loopback address of the engine's host, and by the host's own resolv.conf: that of `--dns` would be in the container.
Without an answer, what looks up such a name waits for many seconds.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shared.process.parent_death import wrap_command

ADDRESS = "127.0.0.1"
READY = "ready"
MAX_BYTES = 4_096
NO_SUCH_NAME = 3
"""RCODE of RFC 1035, 4.1.1."""


@contextmanager
def name_server(namespace: str) -> Iterator[None]:
    """Runs one on the loopback address of a network namespace, for the time of the block."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", __name__]
    process = subprocess.Popen(wrap_command(command, signal.SIGTERM), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"{READY}\n", f"no name server in {namespace}"
        yield
    finally:
        process.terminate()
        process.communicate()


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
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        while True:
            query, client = server.recvfrom(MAX_BYTES)
            server.sendto(answer(query), client)


if __name__ == "__main__":
    main()
