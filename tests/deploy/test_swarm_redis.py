"""The Redis of the stack for Docker Swarm: its command, its file, its users and the check of its health, on a Redis."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import redis
import redis.exceptions

from redbatch.local_redis import bundled
from tests.deploy.dockerfile import ROOT
from tests.deploy.swarm_stack import STACK, made_secrets, most_bytes, resolved
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.redis
SERVICE: dict[str, Any] = resolved(STACK)["services"]["redis"]
MOST_BYTES = most_bytes(SERVICE)


class Played:
    """The service, with its mounts in a folder; it listens on a socket there."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self.secrets = made_secrets()
        acl, conf = folder / "users.acl", folder / "redis.conf"
        acl.write_text(f"{self.secrets['redbatch_redis_acl']}user observer on nopass +config|get +info\n")
        text = (ROOT / "swarm" / "redis.conf").read_text(encoding="utf-8")
        text = text.replace("dir /data", f"dir {folder}").replace("/run/secrets/redis/users.acl", str(acl))
        conf.write_text(text, encoding="utf-8")
        words = [str(conf) if each == "/etc/redis/redis.conf" else each for each in SERVICE["command"][1:]]
        self._command = [str(server_binary()), *words, "--port", "0", "--unixsocket", str(self.socket)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        """Ends it."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(10)

    def healthy(self) -> bool:
        """Runs the check of its health, as Docker does."""
        kind, line = SERVICE["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        cli = f"{shutil.which('redis-cli') or bundled('redis-cli')} -s {self.socket}"
        words = ["/bin/sh", "-c", line.replace("redis-cli", cli)]
        return subprocess.run(words, check=False, capture_output=True, timeout=10).returncode == 0

    def as_user(self, user: str, password: str) -> redis.Redis:
        """Returns a client of that user."""
        return redis.Redis(
            unix_socket_path=str(self.socket), username=user, password=password, protocol=2, decode_responses=True
        )


@pytest_asyncio.fixture
async def played(tmp_path: Path, needs_redis: Callable[[str], None]) -> AsyncIterator[Played]:
    """The service, healthy."""
    needs_redis("7.0")
    found = Played(tmp_path)
    assert not found.healthy()
    found.start()
    try:
        await wait_until(found.healthy, "Redis is healthy", poll_s=0.1)
        yield found
    finally:
        found.stop()


async def test_redis_takes_its_file(played: Played) -> None:
    """It refuses what it has no room for, and writes down the rest; each process gets in as who it is."""
    for name in ("gateway", "worker"):
        where = urlsplit(played.secrets[f"redbatch_{name}_redis_url"].strip())
        assert (where.scheme, where.username, where.hostname, where.port) == ("redis", name, "redis", 6379)
        with played.as_user(name, str(where.password)) as client:
            assert client.execute_command("TIME")
    with played.as_user("observer", "any") as observer:
        asked = ("maxmemory-policy", "appendonly", "appendfsync", "maxmemory", "stream-node-max-entries", "save")
        found = [observer.config_get(each)[each] for each in asked]
    assert found == ["noeviction", "yes", "everysec", str(MOST_BYTES), "4", ""]


async def test_who_has_no_password_may_ask_whether_it_lives(played: Played) -> None:
    """As the probe, and nothing else; as nobody not even that, which the check of its health tells from health."""
    with played.as_user("probe", "probe") as probe:
        assert probe.ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            probe.get("rb:queues")
    with (
        redis.Redis(unix_socket_path=str(played.socket), protocol=2) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()


async def test_who_sends_without_an_end_does_not_fill_the_memory(played: Played) -> None:
    """Nobody needs a password to be the probe: such connections are cut off before others have no room."""
    chunk = b"x" * 2**20
    with ExitStack() as stack, played.as_user("observer", "any") as observer:
        for _ in range(4):
            talker = stack.enter_context(socket.socket(socket.AF_UNIX))
            talker.connect(str(played.socket))
            talker.sendall(b"AUTH probe any\r\n*2\r\n$4\r\nPING\r\n$500000000\r\n")
            await asyncio.to_thread(send_all, talker, chunk, 200)
        used: dict[str, Any] = observer.info("memory")
    assert used["used_memory"] < MOST_BYTES * 0.2


def send_all(talker: socket.socket, chunk: bytes, times: int) -> None:
    """Sends a chunk so many times, or until nobody takes it any more."""
    try:
        for _ in range(times):
            talker.sendall(chunk)
    except OSError:
        return
