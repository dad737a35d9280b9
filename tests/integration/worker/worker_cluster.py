"""A queue, the workers that a test starts on it, and requests whose replies are checked."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import redis.asyncio

from gpuworker.backends.simulated import REPEATS
from shared.codec import decode_reply, encode_body
from shared.connection import RedisConnection
from shared.keys import GROUP, RELEASED, Keys
from shared.messages import EMBED, Body, Failure, NewEntry, Ref, Reply, Vectors
from shared.producer import Submission, cancel, queue_stats
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.integration.queue.actors import Gateway
from tests.processes import Processes, Program, heartbeat_is_ready, heartbeat_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMEOUT_MS = 30_000
REPLY_TIMEOUT_S = 30.0


def hash_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns the vectors of the models `null` and `simulated`."""
    digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
    rows = np.frombuffer(digests, dtype=np.uint8).astype(np.float32).reshape(len(texts), 32) / np.float32(255)
    return np.tile(rows, (1, REPEATS))


def vectors_of(reply: Reply) -> NDArray[np.float32]:
    """Returns the vectors of a reply. Raises AssertionError if it is an error."""
    assert isinstance(reply, Vectors), reply
    return np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)


@dataclass(frozen=True)
class PendingRequest:
    """A submitted request of one entry: its texts and its id."""

    request_id: str
    texts: tuple[str, ...]

    def check(self, reply: Reply) -> None:
        """Checks that a reply belongs to this request and contains a hashing model's vectors of exactly its texts."""
        assert reply.request_id == self.request_id
        assert np.array_equal(vectors_of(reply), hash_vectors(self.texts))


@dataclass
class WorkerCluster:
    """The surroundings of a worker under test.

    Attributes:
        url: URL of Redis for the workers.
        processes: starts the workers.
        queue: the connections of the queue.
        raw: a plain Redis client.
        connection: a connection of the queue, to inspect it.
        gateway: submits entries.
        workers: the programs that were started.
    """

    url: str
    processes: Processes
    queue: QueueConnections
    raw: redis.asyncio.Redis
    connection: RedisConnection
    gateway: Gateway
    workers: list[Program] = field(default_factory=list)

    @property
    def keys(self) -> Keys:
        """The keys of the test's queue."""
        return self.queue.keys

    @property
    def lane(self) -> str:
        """The stream of the interactive lane."""
        return self.keys.lanes[0]

    async def start_worker(self, model: str = "null", *, ready: bool = True, **settings: object) -> Program:
        """Starts a worker, with settings by their names: `reclaim_idle_ms=500`; waits until it is ready if `ready`."""
        env = {f"REDBATCH_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"REDBATCH_REDIS_URL": self.url, "REDBATCH_QUEUE": self.keys.queue, "REDBATCH_MODEL": model}
        env.setdefault("REDBATCH_ADMIN_PORT", "0")
        condition = heartbeat_is_ready(self.connection, self.keys) if ready else None
        program = await self.processes.start(f"worker{len(self.workers)}", "gpuworker", env, condition)
        self.workers.append(program)
        return program

    async def submit(self, *texts: str, timeout_ms: int = TIMEOUT_MS) -> PendingRequest:
        """Submits a request of one entry with these texts."""
        return (await self.submit_many([texts], timeout_ms=timeout_ms))[0]

    async def submit_many(
        self, entries: Iterable[Sequence[str]], *, timeout_ms: int = TIMEOUT_MS
    ) -> list[PendingRequest]:
        """Submits entries in one call, each as the only entry of its request."""
        inputs = [tuple(texts) for texts in entries]
        submissions = [self.submission(Body(EMBED, texts), timeout_ms) for texts in inputs]
        await self.gateway.add(*submissions)
        return [PendingRequest(each.request_id, texts) for each, texts in zip(submissions, inputs, strict=True)]

    def submission(self, body: Body, timeout_ms: int = TIMEOUT_MS) -> Submission:
        """Returns a request of one entry with this body."""
        return Submission(uuid.uuid4().hex, (_new_entry(body, len(body.inputs)),), timeout_ms)

    async def cancel(self, refs: Sequence[Ref]) -> int:
        """Cancels entries and returns the number of those that were in the queue."""
        return await cancel(self.connection, self.keys, refs, ())

    async def wait_for_reply(self, request_id: str, timeout_s: float = REPLY_TIMEOUT_S) -> Reply:
        """Waits until a request has a reply, removes it from Redis, and returns it."""
        key, replies = self.keys.reply(request_id), []

        async def has_reply() -> bool:
            value: Any = await self.raw.execute_command("LPOP", key)
            replies.extend([] if value is None else [value])
            return bool(replies)

        await wait_until(has_reply, "the request has a reply", timeout_s=timeout_s)
        return decode_reply(replies[0])

    async def check_replies(self, requests: Iterable[PendingRequest], timeout_s: float = REPLY_TIMEOUT_S) -> None:
        """Waits for the replies and checks each."""
        for each in requests:
            each.check(await self.wait_for_reply(each.request_id, timeout_s))

    async def wait_for_error_code(self, request_id: str, timeout_s: float = REPLY_TIMEOUT_S) -> str:
        """Waits for the reply to a request, which must be an error, and returns its code."""
        reply = await self.wait_for_reply(request_id, timeout_s)
        assert isinstance(reply, Failure), reply
        return reply.code

    async def entries_in_progress(self) -> set[str]:
        """Returns the entries that workers have marked as running, as lane/id."""
        names: set[str] = set()
        async for key in self.raw.scan_iter(match=self.keys.begun("*")):
            value: Any = await self.raw.get(key)
            names |= set((value or b"").decode().split())
        return names

    async def has_entry_in_progress(self) -> bool:
        """Whether a worker has marked an entry as running."""
        return bool(await self.entries_in_progress())

    async def is_idle(self, worker: Program) -> bool:
        """Whether a worker's heartbeat reports that it holds no entries."""
        beat = await heartbeat_of(worker, self.connection, self.keys)
        return beat is not None and (beat.holds, beat.begun) == (0, 0)

    async def has_no_released_consumer(self) -> bool:
        """Whether the consumer of entries that were handed back has left the group."""
        return RELEASED not in await self.consumers()

    async def live_workers(self) -> set[str]:
        """Returns the names of the workers that have a heartbeat."""
        return {beat.worker for beat in (await queue_stats(self.connection, self.keys)).workers}

    async def has_only_live_consumers(self) -> bool:
        """Whether the consumers of the group are exactly the live workers."""
        return await self.consumers() == await self.live_workers()

    async def worker_connections(self) -> list[dict[str, str]]:
        """Returns the rows of CLIENT LIST for connections of workers."""
        rows: Any = await self.raw.client_list()
        return [row for row in rows if row["name"].startswith("worker:")]

    async def has_blocked_read(self) -> bool:
        """Whether a connection of a worker waits in a blocking read."""
        return any("b" in row["flags"] for row in await self.worker_connections())

    async def kill_worker_connections(self) -> None:
        """Closes all connections of workers."""
        for row in await self.worker_connections():
            await self.raw.execute_command("CLIENT", "KILL", "ID", row["id"])

    async def pending_entries(self) -> list[dict[str, Any]]:
        """Returns the claimed entries: message_id, consumer, times_delivered (one more than the attempts)."""
        return list(await self.raw.xpending_range(self.lane, GROUP, "-", "+", 10_000))

    async def consumers(self) -> set[str]:
        """Returns the names of the consumers in the group."""
        rows: Any = await self.raw.xinfo_consumers(self.lane, GROUP)
        return {row["name"].decode() for row in rows}

    async def is_empty(self) -> bool:
        """Whether the lane has no entries, waiting or claimed, and there are no replies."""
        replies = [key async for key in self.raw.scan_iter(match=self.keys.reply("*"))]
        return not replies and await self.raw.xlen(self.lane) == 0 and await self.pending_entries() == []


def _new_entry(body: Body, n: int) -> NewEntry:
    return NewEntry(0, n, sum(len(text) // 4 + 1 for text in body.inputs), encode_body(body))


async def get_admin(program: Program, path: str) -> httpx.Response:
    """Sends a GET request to a worker's admin port, which is in its first log line."""
    port = program.log_records("worker starts")[0]["admin_port"]
    async with plain_http.client(base_url=f"http://127.0.0.1:{port}") as client:
        return await client.get(path)


async def metric(program: Program, name: str) -> float:
    """Returns the value of a metric, or 0 if it has none; if the name has no labels, the sum over them."""
    lines = (await get_admin(program, "/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


async def num_reclaimed(program: Program) -> tuple[float, float]:
    """Returns how many entries a worker has reclaimed: those released by others, and those of silent workers."""
    released, silent = [
        await metric(program, f'redbatch_reclaimed_total{{origin="{each}"}}') for each in ("released", "silent")
    ]
    return released, silent


async def submit_and_check(cluster: WorkerCluster, batches: Iterable[Sequence[Sequence[str]]]) -> None:
    """Submits batches of entries concurrently and checks every reply."""

    async def one(entries: Sequence[Sequence[str]]) -> None:
        await cluster.check_replies(await cluster.submit_many(entries))

    await asyncio.gather(*(one(entries) for entries in batches))
