"""Redis servers in cluster mode, whose slots a test moves from one master to another, or to a replica."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from redbatch.up.local_redis import LocalRedisError
from tests.servers import Server, tls_options

NUM_SLOTS = 16_384
BUS_OFFSET = 10_000
"""The servers talk to each other on a port that is this much higher."""

START_S = 20.0
MOVE_TIMEOUT_MS = 5_000
ATTEMPTS = 5


def slot_of(key: str) -> int:
    """Returns the slot of a key."""
    return int(key_slot(key.encode()))


class RedisCluster:
    """Servers of which the first has all slots at the start, but one for each other: without, it becomes a replica.

    Args:
        num_masters: at least 2; with 3, the others can promote a replica if one of them dies.
        num_replicas: of the first master.
        certificates: as in `tls_options`, for localhost and 127.0.0.1: then clients of `cluster_url` and the servers
            use TLS, but this class does not.
    """

    def __init__(self, num_masters: int = 2, num_replicas: int = 0, certificates: Path | None = None) -> None:
        self._num_masters = num_masters
        self._num_servers = num_masters + num_replicas
        self._certificates = certificates
        self.servers: list[Server] = []
        self._ports: list[int] = []  # by which the servers know each other
        self._clients: list[redis.Redis] = []
        self._ids: list[str] = []
        self._stack = ExitStack()

    @property
    def urls(self) -> list[str]:
        """The URLs of the servers."""
        return [each.url for each in self.servers]

    @property
    def cluster_url(self) -> str:
        """The URL of the cluster: with the last server, which need not have any slot that matters, and the first."""
        scheme, host = ("rediss", "localhost") if self._certificates else ("redis", "127.0.0.1")
        return f"{scheme}+cluster://{host}:{self._ports[-1]},{host}:{self._ports[0]}"

    def __enter__(self) -> Self:
        with self._stack:
            for _ in range(self._num_servers):
                server, port = _start_server(self._certificates)
                self.servers.append(self._stack.enter_context(server))
                self._ports.append(port)
                self._clients.append(self._stack.enter_context(redis.Redis.from_url(self.urls[-1], protocol=2)))
            self._ids = [self._call(index, "MYID").decode() for index in range(self._num_servers)]
            for port in self._ports[1:]:
                self._call(0, "MEET", "127.0.0.1", port)
            self._call(0, "ADDSLOTS", *range(self._num_masters - 1, NUM_SLOTS))
            for index in range(1, self._num_masters):
                self._call(index, "ADDSLOTS", index - 1)
            self._wait_until_joined()
            for index in range(self._num_masters, self._num_servers):
                self._call(index, "REPLICATE", self._ids[0])
            self.wait_until_replicated()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def fail_over(self, replica: int) -> None:
        """Has a replica promoted, as for maintenance."""
        self._call(replica, "FAILOVER")

    def wait_until_replicated(self) -> None:
        """Waits until each replica, of which some may just have become it, has the data of its master."""
        self._wait(lambda: all(self._is_in_step(each) for each in self._clients), "a replica is not in step")

    def wait_for_owner(self, slot: int, index: int) -> None:
        """Waits until the other servers name this one as that which has a slot."""
        others = [each for each in range(self._num_servers) if each != index]
        self._wait(lambda: index in {self._owner(other, slot) for other in others}, "a server does not take over")

    def _owner(self, asked: int, slot: int) -> int | None:
        """Returns the server that has a slot, as one of them says; None if it does not answer."""
        try:
            nodes: Any = self._clients[asked].cluster("NODES")
        except redis.RedisError:
            return None
        for address, node in nodes.items():
            if any(int(first) <= slot <= int(last) for first, last in [(each[0], each[-1]) for each in node["slots"]]):
                port = int(address.rpartition(":")[2].partition("@")[0])
                return next((index for index, each in enumerate(self.servers) if each.port == port), None)
        return None

    @staticmethod
    def _is_in_step(client: redis.Redis) -> object:
        info: Any = client.info("replication")
        return bool(
            info["role"] == "master" or (info["master_link_status"], info["master_sync_in_progress"]) == ("up", 0)
        )

    def begin_move(self, slot: int, source: int, target: int) -> None:
        """Lets a slot migrate: the source redirects calls for a key that it does not have (ASK)."""
        self._call(target, "SETSLOT", slot, "IMPORTING", self._ids[source])
        self._call(source, "SETSLOT", slot, "MIGRATING", self._ids[target])

    def cancel_move(self, slot: int, source: int, target: int) -> None:
        """Ends a migration; the slot stays where it was."""
        for index in (source, target):
            self._call(index, "SETSLOT", slot, "STABLE")

    def finish_move(self, slot: int, source: int, target: int) -> None:
        """Moves the keys of a slot that migrates, and then the slot."""
        while keys := self._call(source, "GETKEYSINSLOT", slot, 64):
            port = self.servers[target].port
            move: list[Any] = ["MIGRATE", "127.0.0.1", port, "", 0, MOVE_TIMEOUT_MS, "KEYS", *keys]
            self._clients[source].execute_command(*move)
        for index in (target, source):
            self._call(index, "SETSLOT", slot, "NODE", self._ids[target])

    def move(self, slot: int, source: int, target: int) -> None:
        """Moves a slot with its keys."""
        self.begin_move(slot, source, target)
        self.finish_move(slot, source, target)

    def _call(self, index: int, *command: Any) -> Any:  # noqa: ANN401 - depends on the command
        return self._clients[index].execute_command("CLUSTER", *command)

    def _wait_until_joined(self) -> None:
        everyone = range(self._num_servers)
        self._wait(
            lambda: all(self._is_joined(index) for index in everyone),
            "the servers of the cluster do not find each other",
        )

    @staticmethod
    def _wait(is_done: Callable[[], object], problem: str) -> None:
        until = time.monotonic() + START_S
        while not is_done():
            assert time.monotonic() < until, problem
            time.sleep(0.02)

    def _is_joined(self, index: int) -> bool:
        info = bytes(self._call(index, "INFO"))
        return b"cluster_state:ok" in info and b"cluster_known_nodes:%d\r" % self._num_servers in info


def _start_server(certificates: Path | None) -> tuple[Server, int]:
    """Starts a server on a port whose counterpart is free too; no other program may choose it meanwhile.

    Raises LocalRedisError: it was built without TLS.
    """
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"]
    if certificates is not None:
        for name, value in {"tls-cluster": "yes", **tls_options(certificates)}.items():
            options += [f"--{name}", value]
    for _ in range(ATTEMPTS):
        port = random.randrange(20_000, 32_000)  # below those of outgoing connections
        try:
            with socket.socket() as bus:
                bus.bind(("127.0.0.1", port + BUS_OFFSET))
            own = ["--tls-port", str(port)] if certificates is not None else []
            server = Server(port=0 if own else port, options=[*options, *own], users=False)
            server.start()
        except (OSError, LocalRedisError) as error:
            if "Bad directive" in str(error):
                raise
            continue
        return server, port
    raise AssertionError("no ports for a cluster")
