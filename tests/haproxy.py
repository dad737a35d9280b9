"""haproxy in front of several Redis, of which it leads to the one that says that it is the master."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redbatch.up.local_redis import free_port
from tests.servers import Server, require_tool

STOP_S = 5.0

CONFIGURATION = """
global
    stats socket {folder}/haproxy.sock
defaults
    mode tcp
    timeout connect 1s
    timeout client 60s
    timeout server 60s
listen redis
    bind 127.0.0.1:{port}
    option tcp-check
    tcp-check send PING\\r\\n
    tcp-check expect string +PONG
    tcp-check send info\\ replication\\r\\n
    tcp-check expect string role:master
    tcp-check send QUIT\\r\\n
    tcp-check expect string +OK
    default-server check inter 500ms fall 1 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@contextmanager
def haproxy(folder: Path, servers: Sequence[Server]) -> Iterator[str]:
    """Runs it as docs/redis.md says, and yields the URL at which it leads to the master."""
    port = free_port()
    lines = "\n".join(f"    server redis{i} 127.0.0.1:{each.port}" for i, each in enumerate(servers))
    path = folder / "haproxy.cfg"
    path.write_text(CONFIGURATION.format(folder=folder, port=port, servers=lines), encoding="utf-8")
    command = [require_tool("haproxy", "it leads to the master of several Redis"), "-f", str(path), "-db"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(STOP_S)
