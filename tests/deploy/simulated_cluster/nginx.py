"""nginx in front of the gateways, like an ingress controller: it learns of endpoints some time after they changed.

It does not retry at another gateway, so that requests to a gateway that has ended are visible as failures. On one port
it keeps connections to gateways open, on the other it opens one for each request: a gateway that ends cuts the former,
and refuses the latter.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from shared.process.parent_death import wrap_command
from tests.nginx import nginx, write_configuration
from tests.waiting import wait_until

ENDPOINT_DELAY_S = 7.0
"""Time from a change of the endpoints until the proxy knows it: in real clusters it has been seconds. It is longer than
`preStop` and longer than `drain_delay_s`, and shorter than their sum."""

POLL_S = 0.05
BLOCK = """
    proxy_read_timeout 330s;
    proxy_next_upstream off;
    upstream kept {{
        {servers}
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{kept};
        location / {{
            proxy_pass http://kept;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
    upstream fresh {{
        {servers}
    }}
    server {{
        listen 127.0.0.1:{fresh};
        location / {{
            proxy_pass http://fresh;
        }}
    }}
"""


class Balancer:
    """Balances load over endpoints: each change reaches nginx ENDPOINT_DELAY_S later.

    Args:
        folder: nginx writes its files there.
        endpoints: returns the current addresses with ports.
    """

    def __init__(self, folder: Path, endpoints: Callable[[], list[str]]) -> None:
        self._folder = folder
        self._endpoints = endpoints
        self._current: list[str] = []
        self._pending: deque[tuple[float, list[str]]] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._following: asyncio.Task[None] | None = None
        with socket.socket() as kept, socket.socket() as fresh:
            kept.bind(("127.0.0.1", 0))
            fresh.bind(("127.0.0.1", 0))
            self._ports = {"kept": kept.getsockname()[1], "fresh": fresh.getsockname()[1]}

    @property
    def urls(self) -> list[str]:
        """URLs for clients: with kept connections, and with fresh ones."""
        return [f"http://127.0.0.1:{port}" for port in self._ports.values()]

    async def __aenter__(self) -> Self:
        binary = nginx()
        assert binary is not None
        self._current = self._endpoints()
        self._write(self._current)
        command = [binary, "-p", str(self._folder), "-c", str(self._folder / "nginx.conf")]
        self._process = subprocess.Popen(wrap_command(command, signal.SIGKILL))
        await wait_until((self._folder / "nginx.pid").exists, "nginx runs")
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._process is not None
        assert self._following is not None
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, 10)
        self._following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._following

    def is_up_to_date(self) -> bool:
        """Returns whether nginx knows every change."""
        return not self._pending and self._current == self._endpoints()

    async def _follow(self) -> None:
        assert self._process is not None
        while True:
            await asyncio.sleep(POLL_S)
            now, found = time.monotonic(), self._endpoints()
            if found != self._current:
                self._current = found
                self._pending.append((now + ENDPOINT_DELAY_S, found))
            while self._pending and self._pending[0][0] <= now:
                self._write(self._pending.popleft()[1])
                self._process.send_signal(signal.SIGHUP)

    def _write(self, endpoints: list[str]) -> None:
        servers = " ".join(f"server {each} max_fails=0;" for each in endpoints) or "server 127.0.0.1:9 down;"
        write_configuration(self._folder, BLOCK.format(**self._ports, servers=servers))
