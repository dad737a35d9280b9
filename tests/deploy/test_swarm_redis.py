"""The Redis service of the stack for Docker Swarm: a real Redis with its command, file, users and health check."""

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

from redbatch.up.local_redis import find_bundled
from tests.deploy.dockerfile import ROOT
from tests.deploy.swarm_stack import STACK, generated_secrets, maxmemory_bytes, resolve
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.redis
SERVICE: dict[str, Any] = resolve(STACK)["services"]["redis"]
MAXMEMORY_BYTES = maxmemory_bytes(SERVICE)


class SimulatedRedis:
    """The service as a process, with its mounts in a folder; it listens on a socket there."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self.secrets = generated_secrets()
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
        """Runs its health check like Docker."""
        kind, line = SERVICE["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        cli = f"{shutil.which('redis-cli') or find_bundled('redis-cli')} -s {self.socket}"
        words = ["/bin/sh", "-c", line.replace("redis-cli", cli)]
        return subprocess.run(words, check=False, capture_output=True, timeout=30).returncode == 0

    def as_user(self, user: str, password: str) -> redis.Redis:
        """Returns a client of that user."""
        return redis.Redis(
            unix_socket_path=str(self.socket), username=user, password=password, protocol=2, decode_responses=True
        )


@pytest_asyncio.fixture
async def service(tmp_path: Path, needs_redis: Callable[[str], None]) -> AsyncIterator[SimulatedRedis]:
    """Yields the healthy service."""
    needs_redis("7.0")
    found = SimulatedRedis(tmp_path)
    assert not found.healthy()
    found.start()
    try:
        await wait_until(found.healthy, "Redis is healthy", poll_s=0.1)
        yield found
    finally:
        found.stop()


async def test_redis_applies_its_file(service: SimulatedRedis) -> None:
    """Redis does not evict, persists its data, and lets each process in as its own user."""
    for name in ("gateway", "worker"):
        where = urlsplit(service.secrets[f"redbatch_{name}_redis_url"].strip())
        assert (where.scheme, where.username, where.hostname, where.port) == ("redis", name, "redis", 6379)
        with service.as_user(name, str(where.password)) as client:
            assert client.execute_command("TIME")
    with service.as_user("observer", "any") as observer:
        names = ("maxmemory-policy", "appendonly", "appendfsync", "maxmemory", "stream-node-max-entries", "save")
        found = [observer.config_get(each)[each] for each in names]
    assert found == ["noeviction", "yes", "everysec", str(MAXMEMORY_BYTES), "4", ""]


async def test_the_probe_user_may_only_ping(service: SimulatedRedis) -> None:
    """The user `probe` may PING and nothing else; without a user even PING fails, and so does the health check."""
    with service.as_user("probe", "probe") as probe:
        assert probe.ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            probe.get("rb:queues")
    with (
        redis.Redis(unix_socket_path=str(service.socket), protocol=2) as anonymous,
        pytest.raises(redis.AuthenticationError),
    ):
        anonymous.ping()


async def test_endless_commands_do_not_fill_the_memory(service: SimulatedRedis) -> None:
    """Connections of `probe`, which needs no password, are closed before their input fills the memory."""
    chunk = b"x" * 2**20
    with ExitStack() as stack, service.as_user("observer", "any") as observer:
        for _ in range(4):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(service.socket))
            client.sendall(b"AUTH probe any\r\n*2\r\n$4\r\nPING\r\n$500000000\r\n")
            await asyncio.to_thread(send_all, client, chunk, 200)
        used: dict[str, Any] = observer.info("memory")
    assert used["used_memory"] < MAXMEMORY_BYTES * 0.2


def send_all(client: socket.socket, chunk: bytes, times: int) -> None:
    """Sends a chunk this number of times, or until the connection is closed."""
    try:
        for _ in range(times):
            client.sendall(chunk)
    except OSError:
        return
