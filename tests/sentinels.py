"""A master with replicas, and the sentinels that watch it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import redis.asyncio

from redbatch.up.local_redis import free_port
from shared.process.parent_death import wrap_command
from tests.servers import Server, server_binary, tls_options
from tests.users import OBSERVER, REPLICA, SENTINEL, password_of
from tests.waiting import wait_until

MASTER = "mymaster"
NUM_SERVERS = 3
QUORUM = 2
DOWN_AFTER_MS = 1_000
FAILOVER_TIMEOUT_MS = 3_000
START_S = 20.0
STOP_S = 5.0
ANNOUNCED_WITHIN_S = 4.0
"""Time for connections to follow an announcement: half of that until sentinels make the former master a replica."""


class Sentinel:
    """One sentinel process.

    Args:
        folder: for its configuration.
        master: address of the master.
        more_lines: of its configuration: how it logs in at Redis, and who at it.
        password: its own.
        has_tls: whether it listens with TLS too; then it is known by names.

    Attributes:
        port: without TLS.
        url_port: in URLs.
    """

    def __init__(
        self, folder: Path, master: str, more_lines: Sequence[str], password: str, *, has_tls: bool = False
    ) -> None:
        self.port = free_port()
        self.url_port = free_port() if has_tls else self.port
        self._config = folder / f"sentinel-{self.port}.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {MASTER} {master} {QUORUM}",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MS}",
            f"sentinel parallel-syncs {MASTER} 2",
        ]
        if has_tls:
            names = ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"]
            lines += [f"tls-port {self.url_port}", *names, "sentinel announce-ip localhost"]
        self._config.write_text("\n".join([*lines, *more_lines]) + "\n", encoding="utf-8")
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it."""
        command = wrap_command([str(server_binary()), str(self._config), "--sentinel"], signal.SIGKILL)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kills it, if it runs (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    @property
    def pid(self) -> int:
        """The process id, while it runs."""
        assert self._process is not None
        return self._process.pid

    async def call(self, *command: str) -> Any:  # noqa: ANN401 - depends on the command
        """Sends it a command and returns the reply."""
        async with redis.asyncio.Redis(port=self.port, password=self._password or None, protocol=2) as raw:
            return await raw.execute_command("SENTINEL", *command)


class SentinelGroup:
    """A master with two replicas, and three sentinels of which two decide.

    Args:
        servers: all Redis servers; the first one is the master at the start.
        login: user and password in URLs, with an @.
        tls_ports: of the servers, if they have TLS.

    Attributes:
        servers: all Redis servers.
        sentinels: all sentinels.
    """

    def __init__(self, servers: list[Server], login: str, tls_ports: Sequence[int] = ()) -> None:
        self.servers = servers
        self.sentinels: list[Sentinel] = []
        self._login = login
        self._tls_ports = tls_ports

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        scheme, host = ("rediss+sentinel", "localhost") if self._tls_ports else ("redis+sentinel", "127.0.0.1")
        hosts = ",".join(f"{host}:{each.url_port}" for each in self.sentinels)
        return f"{scheme}://{self._login}{hosts}/{MASTER}/0"

    def client(self, server: Server) -> redis.asyncio.Redis:
        """Returns a client of one of the servers."""
        return redis.asyncio.Redis.from_url(f"redis://{self._login}127.0.0.1:{server.port}/0", protocol=2)

    async def master(self) -> Server:
        """Returns the master as the last sentinel says: tests kill the first ones."""
        port = int((await self.sentinels[-1].call("GET-MASTER-ADDR-BY-NAME", MASTER))[1])
        ports = self._tls_ports or [each.port for each in self.servers]
        return self.servers[ports.index(port)]

    async def fail_over(self) -> None:
        """Has a replica promoted, as for maintenance, and waits until the sentinels name it.

        Sentinels that have stood still for 2 s, as on a busy machine, do nothing for 30 s: so it is tried twice.
        """
        before = await self.master()
        await self.sentinels[-1].call("FAILOVER", MASTER)
        try:
            await self.wait_for_failover(before)
        except AssertionError:
            with suppress(redis.ResponseError):  # it still goes on
                await self.sentinels[-1].call("FAILOVER", MASTER)
            await self.wait_for_failover(before)

    async def wait_for_failover(self, before: Server) -> None:
        """Waits until the sentinels name another master."""

        async def is_over() -> bool:
            return await self.master() is not before

        await wait_until(is_over, "a replica is promoted", timeout_s=START_S)

    async def wait_until_joined(self) -> None:
        """Waits until each sentinel knows the others, and both replicas, which are in step."""

        async def is_joined() -> bool:
            for sentinel in self.sentinels:
                reply = await sentinel.call("MASTER", MASTER)
                fields = dict(zip(reply[::2], reply[1::2], strict=True))
                known = [fields[name] for name in (b"num-slaves", b"num-other-sentinels", b"flags")]
                if known != [b"2", b"2", b"master"]:
                    return False
            return await self._are_replicas_in_step()

        await wait_until(is_joined, "the sentinels know each other and both replicas", timeout_s=START_S)

    async def _are_replicas_in_step(self) -> bool:
        async with self.client(await self.master()) as raw:
            info: Any = await raw.info("replication")
        return bool(info["connected_slaves"] == 2 and {info[f"slave{i}"]["state"] for i in (0, 1)} == {"online"})


@asynccontextmanager
async def sentinel_group(
    folder: Path,
    *,
    password: str = "",
    sentinel_password: str = "",
    users: bool = False,
    certificates: Path | None = None,
) -> AsyncIterator[SentinelGroup]:
    """Starts a group, and stops it at the end.

    Args:
        folder: for the sentinels.
        password: of Redis, if it has no users.
        sentinel_password: of the sentinels.
        users: whether Redis has the users of docs/redis.md; the group's URL is the observer's then.
        certificates: folder with ca.pem, and with redis.pem and redis.key for localhost: all connections use TLS,
            except those of this module. Servers and sentinels have names then, not addresses.
    """
    options, lines, login = _logins(password, sentinel_password, users=users)
    tls = tls_options(certificates) if certificates is not None else {}
    tls_ports = [free_port() for _ in range(NUM_SERVERS)] if tls else []
    lines += [f"{name} {value}" for name, value in tls.items()]
    options += [word for name, value in tls.items() for word in (f"--{name}", value)]
    named = [["--tls-port", f"{port}", "--replica-announce-ip", "localhost"] for port in tls_ports]
    servers = [Server(users=users, options=[*options, *own]) for own in named or [[]] * NUM_SERVERS]
    async with AsyncExitStack() as stack:
        for server in servers:
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        group = SentinelGroup(servers, login, tls_ports)
        master = f"localhost {tls_ports[0]}" if tls_ports else f"127.0.0.1 {servers[0].port}"
        await _replicate(group, master)
        for _ in range(NUM_SERVERS):
            group.sentinels.append(Sentinel(folder, master, lines, sentinel_password, has_tls=bool(tls_ports)))
            group.sentinels[-1].start()
            stack.callback(group.sentinels[-1].kill)
        await _wait_until_reachable(group)
        await group.wait_until_joined()
        yield group


async def _replicate(group: SentinelGroup, master: str) -> None:
    for server in group.servers[1:]:
        async with group.client(server) as raw:
            await raw.execute_command("REPLICAOF", *master.split())


def _logins(password: str, sentinel_password: str, *, users: bool) -> tuple[list[str], list[str], str]:
    """Returns options of Redis, lines for sentinels, and user and password for URLs."""
    options = ["--repl-diskless-sync-delay", "0", "--repl-diskless-sync", "yes"]
    lines, login = [], ""
    if users:
        options += ["--masteruser", REPLICA, "--masterauth", password_of(REPLICA)]
        lines += [f"sentinel auth-user {MASTER} {SENTINEL}", f"sentinel auth-pass {MASTER} {password_of(SENTINEL)}"]
        login = f"{OBSERVER}:{password_of(OBSERVER)}@"
    elif password:
        options += ["--requirepass", password, "--masterauth", password]
        lines, login = [f"sentinel auth-pass {MASTER} {password}"], f":{password}@"
    if sentinel_password:
        lines += [f"requirepass {sentinel_password}", f"sentinel sentinel-pass {sentinel_password}"]
    return options, lines, login


async def _wait_until_reachable(group: SentinelGroup) -> None:
    until = time.monotonic() + START_S
    for sentinel in group.sentinels:
        while True:
            try:
                await sentinel.call("MYID")
                break
            except redis.RedisError:
                assert time.monotonic() < until, "a sentinel does not start"
                await asyncio.sleep(0.05)
