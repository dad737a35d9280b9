"""The ways over which clients reach a gateway: its own port, and the nginx of docs/behind-a-proxy.md with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from redbatch.up.local_redis import free_port
from shared.process.parent_death import wrap_command
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.nginx import nginx, write_configuration
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[3] / "docs" / "behind-a-proxy.md").read_text(encoding="utf-8")
PREFIX = "/redbatch"
"""The prefix of the block; a gateway that has it as `root_path` is reached with it on both ways."""

SETTINGS = {"auth": "on", "root_path": PREFIX, "trusted_proxies": "127.0.0.1"}
"""Settings of a gateway that requires API keys, behind this nginx."""

KEEPS = "proxy_pass http://redbatch;"
HOST, ANSWER_S = "127.0.0.1", 20.0
NEEDS_NGINX = pytest.mark.skipif(nginx() is None, reason="nginx is not installed")

DIRECTLY, THROUGH_NGINX = "directly", "through nginx with TLS"
WAYS = [DIRECTLY, pytest.param(THROUGH_NGINX, marks=NEEDS_NGINX)]
"""The names of the ways, for `pytest.mark.parametrize`."""

BY_NGINX = {
    "a URL without an end": 414,
    "larger than any": 413,
    "endless bodies": 502,
    **dict.fromkeys(
        (
            "fields without an end",
            "a value over the limit",
            "a value without an end",
            "a value without an end, in small parts",
            "a name without an end",
            "requests without an end in one read",
            "a space in a name",
            "a space after a name",
            "a folded value",
            "a NUL in a value",
            "two lengths",
            "a length and chunks",
            "a negative length",
            "a length over 64 bits",
            "chunks that are none",
            "not HTTP",
            "not text",
            "HTTP/2",
            "a tunnel",
        ),
        400,
    ),
}
"""The status of nginx, by the name of an attack, where it answers by itself: it passes on no head that is broken, and
none over its buffers. All other attacks get the gateway's answer on both ways.

Only "endless bodies" may get either: while a client sends without a pause, nginx sends on and reads no answer.
"""


@dataclass(frozen=True)
class Way:
    """A port that speaks HTTP; with TLS if there is a context with the authority of its certificate.

    `api_key` is one that the gateway accepts; "" if it needs none. Paths begin with `prefix`: nothing directly, as
    gateways of earlier versions have no `root_path`.
    """

    port: int
    tls: ssl.SSLContext | None = None
    api_key: str = ""
    prefix: str = ""

    @property
    def url(self) -> str:
        """The URL of the prefix."""
        return f"{'http' if self.tls is None else 'https'}://{HOST}:{self.port}{self.prefix}"

    async def exchange(self, parts: AsyncIterator[bytes], source: str = HOST) -> bytes:
        """Sends parts from an address until an answer comes, and returns it; b"" if the connection is closed instead.

        Raises TimeoutError: neither happens within ANSWER_S.
        """
        name = None if self.tls is None else HOST
        reader, writer = await asyncio.open_connection(
            HOST, self.port, local_addr=(source, 0), ssl=self.tls, server_hostname=name
        )
        answer = asyncio.create_task(read_answer(reader))
        try:
            with contextlib.suppress(ConnectionError):
                async for part in parts:
                    writer.write(part)
                    await writer.drain()
                    if answer.done():
                        break
            return await asyncio.wait_for(answer, ANSWER_S)
        finally:
            answer.cancel()
            writer.transport.abort()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Returns an answer with its body, or what there is of it when the connection is closed."""
    head = b""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        return head + await reader.readexactly(int(length[1]) if length else 0)
    except asyncio.IncompleteReadError as error:
        return head + error.partial
    except ConnectionError:
        return head


def documented_block() -> str:
    """Returns the block of the page."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert KEEPS in block
    return str(block)


@asynccontextmanager
async def running_nginx(
    folder: Path,
    ports: Sequence[int],
    replaced: Mapping[str, str] | None = None,
    *,
    tls: bool = False,
    api_key: str = "",
) -> AsyncIterator[Way]:
    """Runs nginx with the block, for the gateways on these ports, and yields the way through it.

    `replaced` maps directives of the block to others. With `tls` it has a certificate, made here.
    """
    port, listen, context = free_port(), "", None
    if tls:
        authority, context = trustme.CA(), ssl.create_default_context()
        authority.configure_trust(context)
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(folder / "nginx.pem")
        listen = f" ssl; ssl_certificate {folder}/nginx.pem; ssl_certificate_key {folder}/nginx.pem"
    replaced = {"listen 80;": f"listen {HOST}:{port}{listen};", **(replaced or {})}
    replaced |= {f"{HOST}:{8_080 + number}": f"{HOST}:{each}" for number, each in enumerate(ports)}
    block = documented_block()
    for documented, actual in replaced.items():
        assert documented in block
        block = block.replace(documented, actual)
    write_configuration(folder, block)
    command = [nginx() or "", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(wrap_command(command, signal.SIGKILL))
    try:
        await wait_until(lambda: process.poll() is not None or (folder / "nginx.pid").exists(), "nginx runs")
        assert process.poll() is None
        yield Way(port, context, api_key, PREFIX)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


@asynccontextmanager
async def open_way(
    name: str, gateway: GatewayProcess, folder: Path, api_key: str, replaced: Mapping[str, str] | None = None
) -> AsyncIterator[Way]:
    """Yields the way of this name, one of WAYS, to a gateway with SETTINGS; see `running_nginx`."""
    if name == DIRECTLY:
        yield Way(gateway.port, api_key=api_key)
        return
    async with running_nginx(folder, [gateway.port] * 2, replaced, tls=True, api_key=api_key) as way:
        yield way
