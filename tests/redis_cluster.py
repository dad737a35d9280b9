"""Redis servers in cluster mode: masters without replicas, whose slots a test moves from one to another."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from typing import Any, Self

import redis
from redis.crc import key_slot

from redbatch.up.local_redis import LocalRedisError
from tests.servers import Server

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
        num_servers: at least 2.
    """

    def __init__(self, num_servers: int = 2) -> None:
        self._num_servers = num_servers
        self._servers: list[Server] = []
        self._clients: list[redis.Redis] = []
        self._ids: list[str] = []
        self._stack = ExitStack()

    @property
    def urls(self) -> list[str]:
        """The URLs of the servers."""
        return [each.url for each in self._servers]

    def __enter__(self) -> Self:
        with self._stack:
            for _ in range(self._num_servers):
                self._servers.append(self._stack.enter_context(_start_server()))
                self._clients.append(self._stack.enter_context(redis.Redis.from_url(self.urls[-1], protocol=2)))
            self._ids = [self._call(index, "MYID").decode() for index in range(self._num_servers)]
            for server in self._servers[1:]:
                self._call(0, "MEET", "127.0.0.1", server.port)
            self._call(0, "ADDSLOTS", *range(self._num_servers - 1, NUM_SLOTS))
            for index in range(1, self._num_servers):
                self._call(index, "ADDSLOTS", index - 1)
            self._wait_until_joined()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

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
            port = self._servers[target].port
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
        until = time.monotonic() + START_S
        while not all(self._is_joined(index) for index in range(self._num_servers)):
            assert time.monotonic() < until, "the servers of the cluster do not find each other"
            time.sleep(0.02)

    def _is_joined(self, index: int) -> bool:
        info = bytes(self._call(index, "INFO"))
        return b"cluster_state:ok" in info and b"cluster_known_nodes:%d\r" % self._num_servers in info


def _start_server() -> Server:
    """Starts a server on a port whose counterpart is free too; no other program may choose it meanwhile."""
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    for _ in range(ATTEMPTS):
        port = random.randrange(20_000, 32_000)  # below those of outgoing connections
        try:
            with socket.socket() as bus:
                bus.bind(("127.0.0.1", port + BUS_OFFSET))
            server = Server(port=port, options=options, users=False)
            server.start()
        except (OSError, LocalRedisError):
            continue
        return server
    raise AssertionError("no ports for a cluster")
