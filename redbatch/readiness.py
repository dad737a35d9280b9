"""The missing parts of a cluster, as a gateway reports them."""

from __future__ import annotations

import asyncio
import json

from shared.process.listener import WILDCARDS

PROBE_TIMEOUT_S = 5.0
_REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def fetch_missing_parts(host: str, port: int) -> list[str] | None:
    """Reads the missing parts from GET /readyz: [] when ready, None while no gateway answers."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(WILDCARDS.get(host, host), port)
            try:
                writer.write(_REQUEST)
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
