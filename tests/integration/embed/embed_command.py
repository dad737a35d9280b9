"""Runs `redbatch embed` as a process, and checks its output."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shared import api_keys
from shared.api_keys import Scope
from shared.connection import RedisConnection
from tests.integration.gateway.gateway_cluster import GatewayProcess, null_vector

DIM = 384


def command(gateway: GatewayProcess | str, source: Path | str, out: Path, *options: str) -> list[str]:
    """Returns the command line of `redbatch embed`, for a gateway or its URL."""
    url = gateway if isinstance(gateway, str) else gateway.url
    return [sys.executable, "-m", "redbatch", "embed", str(source), "-o", str(out), "--url", url, *options]


async def embed(
    gateway: GatewayProcess | str, source: Path | str, out: Path, *options: str, stdin: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `redbatch embed` to its end, with these bytes as its standard input."""
    words = command(gateway, source, out, *options)
    done = await asyncio.to_thread(subprocess.run, words, input=stdin, capture_output=True, check=False, timeout=100)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def check_rows(vectors: np.ndarray, texts: Sequence[str | None]) -> None:
    """Checks that each row is the null model's vector of its text, bit for bit, or NaN for a text that is None."""
    assert vectors.shape == (len(texts), DIM)
    for row, text in zip(vectors, texts, strict=True):
        if text is None:
            assert np.isnan(row).all()
        else:
            assert row.astype("<f4").tobytes() == null_vector(text)


async def create_key(connection: RedisConnection, *scopes: Scope) -> str:
    """Creates an API key and returns it."""
    key, text = api_keys.new_key(scopes)
    await api_keys.add(connection, key)
    return text
