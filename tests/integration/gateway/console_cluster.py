"""Two gateways of one queue, for tests of dead letters and jobs at the console."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

from shared import api_keys
from shared.api_keys import Scope
from shared.codec import encode_body
from shared.keys import Keys
from shared.messages import EMBED, VERSION, Body
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes, Program
from tests.servers import Server
from tests.waiting import wait_until

TEXT = "a secret of somebody"


class Console(NamedTuple):
    """Two gateways of a queue on two shards: `open` requires no keys, and `closed` does."""

    open: GatewayProcess
    closed: GatewayProcess
    worker: Program
    queue: str
    servers: tuple[Server, Server]
    keys: dict[str, str]

    def send(self, method: str, path: str, key: str | None = None, *, closed: bool = False, **headers: str) -> Any:  # noqa: ANN401
        """Returns the answer to a request with a key in the header Authorization."""
        url = f"{(self.closed if closed else self.open).url}/console{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            named["authorization"] = f"Bearer {self.keys.get(key, key)}"
        with plain_http.blocking_client() as client:
            return client.request(method, url, headers=named, timeout=60)

    def letters(self, key: str | None = "admin") -> dict[str, Any]:
        """Returns the list of dead letters."""
        return dict(self.send("GET", f"/dead?queue={self.queue}", key).json())

    def clear(self) -> None:
        """Deletes all dead letters; an action has the gateway read its lists again."""
        self.send("DELETE", f"/dead/{self.add_letter()}?queue={self.queue}", "admin")
        for server in self.servers:
            with redis.Redis.from_url(server.url, protocol=2) as client:
                client.delete(Keys(self.queue).dead)

    def add_letter(
        self, *, op: str = EMBED, shard: int = 0, error: str = "input_failed: it kills", worker: str = "w"
    ) -> str:
        """Adds a dead letter as a worker does; returns its id."""
        body = encode_body(Body(op, (TEXT,)))
        fields: dict[Any, Any] = {
            "lane": "interactive",
            "entry": "1-0",
            "attempts": 3,
            "error": error,
            "worker": worker,
        }
        fields |= {"id": "request-1", "v": VERSION, "n": 1, "pos": 0, "cost": 5, "body": body}
        with redis.Redis.from_url(self.servers[shard].url, protocol=2) as client:
            letter_id: Any = client.xadd(Keys(self.queue).dead, fields)
        return f"{shard}@{letter_id.decode()}" if shard else str(letter_id.decode())

    def num_calls(self, command: str) -> int:
        """Returns how often the Redis of the first shard has run a command, also in scripts."""
        with redis.Redis.from_url(self.servers[0].url, protocol=2) as client:
            stats: Any = client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def actions_on(self, letter_id: str, job_id: str) -> list[tuple[str, str]]:
        """Returns the requests of all actions."""
        letter = f"/dead/{letter_id}"
        return [
            ("GET", f"{letter}?queue={self.queue}"),
            ("POST", f"{letter}/requeue?queue={self.queue}"),
            ("DELETE", f"{letter}?queue={self.queue}"),
            ("DELETE", f"/jobs/{job_id}?delete_results=true"),
        ]

    def audit(self, gateway: GatewayProcess | None = None) -> list[dict[str, Any]]:
        """Returns the lines of actions in the log of a gateway, without what all lines have, and without counts."""
        records = (gateway or self.open).program.log_records("admin action")
        names = ("action", "queue", "target", "outcome", "key_id", "client")
        actions = [record for record in records if "repeated" not in record]  # counts of refused ones come later
        return [{name: record[name] for name in names if record.get(name)} for record in actions]

    def key_id(self, key: str) -> str:
        """Returns the id of a key."""
        return self.keys[key].partition(".")[0]


async def create_keys(url: str, queue: str) -> dict[str, str]:
    """Creates a key of each scope; returns them by its name."""
    connections = QueueConnections(QueueSettings(redis_url=url), queue, "test")
    scopes: tuple[Scope, ...] = ("embed", "admin")
    created = {scope: api_keys.new_key((scope,)) for scope in scopes}
    for key, _ in created.values():
        await api_keys.add(connections.connection("keys"), key)
    await connections.close()
    return {scope: secret for scope, (_, secret) in created.items()}


@contextmanager
def started_console(folder: Path) -> Iterator[Console]:
    """Runs both gateways and a worker."""
    queue = f"console-{uuid.uuid4().hex[:8]}"
    with Server() as first, Server() as second:
        cluster = GatewayCluster(Processes(folder), first.url, queue, [second.url])
        others: list[Any] = []

        async def start() -> GatewayProcess:
            keys = await create_keys(first.url, queue)
            gateway, closed, worker = await asyncio.gather(
                cluster.start_gateway(auth="off"), cluster.start_gateway(auth="on"), cluster.start_worker()
            )
            others.extend((closed, worker, keys))
            await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=20)
            return gateway

        with shared_gateway(cluster, start) as gateway:
            closed, worker, keys = others
            yield Console(gateway, closed, worker, queue, (first, second), keys)


@contextmanager
def suspended(program: Program) -> Iterator[None]:
    """Stops a program while the block runs."""
    program.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        program.signal(signal.SIGCONT)
