"""haproxy in front of several Redis, of which it leads to the one that says that it is the master."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redbatch.up.local_redis import free_port
from tests.servers import Server, require_tool

STOP_S = 5.0

PAGE = Path(__file__).parents[1] / "docs" / "redis.md"


def configuration(port: int, servers: Sequence[Server], password: str) -> str:
    """Returns the configuration of docs/redis.md with these addresses; with a password, the check logs in."""
    (text,) = re.findall(r"^```haproxy\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    text, num_servers = re.subn(r"^    server .*\n", "", str(text), flags=re.MULTILINE)
    assert num_servers == 3
    assert text.count("bind :6379\n") == 1
    text = text.replace("bind :6379\n", f"bind 127.0.0.1:{port}\n")
    if password:
        text, num_checks = re.subn(r"^    # (?=tcp-check)", "    ", text, flags=re.MULTILINE)
        assert num_checks == 2
        text = text.replace("PASSWORD", password)
    return text + "".join(f"    server redis{i} 127.0.0.1:{each.port}\n" for i, each in enumerate(servers))


@contextmanager
def haproxy(folder: Path, servers: Sequence[Server], *, password: str = "") -> Iterator[str]:
    """Runs it as docs/redis.md says, and yields the URL at which it leads to the master.

    Args:
        folder: for its configuration.
        servers: of which one is the master.
        password: of the user `haproxy`; without one, the check does not log in.
    """
    port = free_port()
    path = folder / "haproxy.cfg"
    path.write_text(configuration(port, servers, password), encoding="utf-8")
    command = [require_tool("haproxy", "it leads to the master of several Redis"), "-f", str(path), "-db"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(STOP_S)
