"""A queue, the workers that a test starts on it, and a gateway that asks them and looks at every answer."""

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
from shared.connection import QueueConnections, RedisConnection
from shared.keys import GROUP, RELEASED, Keys
from shared.messages import EMBED, Body, Failure, NewEntry, Ref, Reply, Vectors
from shared.producer import Submission, cancel, queue_stats
from tests import plain_http
from tests.integration.queue.actors import Gateway
from tests.processes import Processes, Program, heartbeat_is_ready, heartbeat_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMEOUT_MS = 30_000
ANSWER_S = 20.0


def hash_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns the vectors of the models `null` and `simulated`."""
    digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
    rows = np.frombuffer(digests, dtype=np.uint8).astype(np.float32).reshape(len(texts), 32) / np.float32(255)
    return np.tile(rows, (1, REPEATS))


def vectors_of(reply: Reply) -> NDArray[np.float32]:
    """Returns the vectors of a reply, which must not be an error."""
    assert isinstance(reply, Vectors), reply
    return np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)


@dataclass(frozen=True)
class PendingRequest:
    """A request of one entry that is on its way: its texts, and the id under which the reply comes."""

    request_id: str
    texts: tuple[str, ...]

    def check(self, reply: Reply) -> None:
        """Sees that a reply is the answer of a hashing model to exactly these texts."""
        assert reply.request_id == self.request_id
        assert np.array_equal(vectors_of(reply), hash_vectors(self.texts))


@dataclass
class WorkerCluster:
    """Everything around a worker that is under test."""

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
        """The stream."""
        return self.keys.lanes[0]

    async def start_worker(self, model: str = "null", *, ready: bool = True, **settings: object) -> Program:
        """Starts a worker; settings are given by their names: `reclaim_idle_ms=500`."""
        env = {f"REDBATCH_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"REDBATCH_REDIS_URL": self.url, "REDBATCH_QUEUE": self.keys.queue, "REDBATCH_MODEL": model}
        env.setdefault("REDBATCH_ADMIN_PORT", "0")
        condition = heartbeat_is_ready(self.connection, self.keys) if ready else None
        program = await self.processes.start(f"worker{len(self.workers)}", "gpuworker", env, condition)
        self.workers.append(program)
        return program

    async def submit(self, *texts: str, timeout_ms: int = TIMEOUT_MS) -> PendingRequest:
        """Submits one entry with these texts."""
        return (await self.submit_many([texts], timeout_ms=timeout_ms))[0]

    async def submit_many(
        self, entries: Iterable[Sequence[str]], *, timeout_ms: int = TIMEOUT_MS
    ) -> list[PendingRequest]:
        """Submits entries in one call, each the only one of a request of its own."""
        lots = [tuple(texts) for texts in entries]
        submissions = [self.submission(Body(EMBED, texts), timeout_ms) for texts in lots]
        await self.gateway.add(*submissions)
        return [PendingRequest(each.request_id, texts) for each, texts in zip(submissions, lots, strict=True)]

    def submission(self, body: Body, timeout_ms: int = TIMEOUT_MS) -> Submission:
        """Returns a request of one entry with this body."""
        return Submission(uuid.uuid4().hex, (_new_entry(body, len(body.inputs)),), timeout_ms)

    async def cancel(self, refs: Sequence[Ref]) -> int:
        """Takes entries back; returns how many were there."""
        return await cancel(self.connection, self.keys, refs, ())

    async def wait_for_reply(self, request_id: str, timeout_s: float = ANSWER_S) -> Reply:
        """Waits for the answer to a request."""
        key, found = self.keys.reply(request_id), []

        async def there() -> bool:
            value: Any = await self.raw.execute_command("LPOP", key)
            found.extend([] if value is None else [value])
            return bool(found)

        await wait_until(there, "the request is answered", timeout_s=timeout_s)
        return decode_reply(found[0])

    async def check_replies(self, asked: Iterable[PendingRequest], timeout_s: float = ANSWER_S) -> None:
        """Waits for the answers and sees that each is right."""
        for each in asked:
            each.check(await self.wait_for_reply(each.request_id, timeout_s))

    async def wait_for_error_code(self, request_id: str, timeout_s: float = ANSWER_S) -> str:
        """Waits for the error that answers a request, and returns its code."""
        reply = await self.wait_for_reply(request_id, timeout_s)
        assert isinstance(reply, Failure), reply
        return reply.code

    async def entries_in_progress(self) -> set[str]:
        """The entries whose run some worker has begun, as lane/id."""
        names: set[str] = set()
        async for key in self.raw.scan_iter(match=self.keys.begun("*")):
            value: Any = await self.raw.get(key)
            names |= set((value or b"").decode().split())
        return names

    async def has_entry_in_progress(self) -> bool:
        """Whether some worker has begun to run an entry."""
        return bool(await self.entries_in_progress())

    async def is_idle(self, worker: Program) -> bool:
        """Whether a worker says that it holds nothing."""
        beat = await heartbeat_of(worker, self.connection, self.keys)
        return beat is not None and (beat.holds, beat.begun) == (0, 0)

    async def released_is_gone(self) -> bool:
        """Whether the name that keeps what was handed back has left the group."""
        return RELEASED not in await self.consumers()

    async def live_workers(self) -> set[str]:
        """The workers that live."""
        return {beat.worker for beat in (await queue_stats(self.connection, self.keys)).workers}

    async def has_only_live_consumers(self) -> bool:
        """Whether the group names workers that live, and nobody else."""
        return await self.consumers() == await self.live_workers()

    async def worker_connections(self) -> list[dict[str, str]]:
        """What CLIENT LIST shows of workers' connections."""
        rows: Any = await self.raw.client_list()
        return [row for row in rows if row["name"].startswith("worker:")]

    async def has_blocked_read(self) -> bool:
        """Whether some worker waits in a blocking read."""
        return any("b" in row["flags"] for row in await self.worker_connections())

    async def kill_worker_connections(self) -> None:
        """Closes all connections that workers have."""
        for row in await self.worker_connections():
            await self.raw.execute_command("CLIENT", "KILL", "ID", row["id"])

    async def pending_entries(self) -> list[dict[str, Any]]:
        """What is claimed: message_id, consumer, times_delivered (one more than the attempts)."""
        return list(await self.raw.xpending_range(self.lane, GROUP, "-", "+", 10_000))

    async def consumers(self) -> set[str]:
        """The names in the group."""
        rows: Any = await self.raw.xinfo_consumers(self.lane, GROUP)
        return {row["name"].decode() for row in rows}

    async def is_empty(self) -> bool:
        """Whether nothing waits, is claimed, or lies ready."""
        replies = [key async for key in self.raw.scan_iter(match=self.keys.reply("*"))]
        return not replies and await self.raw.xlen(self.lane) == 0 and await self.pending_entries() == []


def _new_entry(body: Body, n: int) -> NewEntry:
    return NewEntry(0, n, sum(len(text) // 4 + 1 for text in body.inputs), encode_body(body))


async def get_admin(program: Program, path: str) -> httpx.Response:
    """Asks a worker's admin port, which it has told in its first log line."""
    port = program.log_records("worker starts")[0]["admin_port"]
    async with plain_http.client(base_url=f"http://127.0.0.1:{port}") as client:
        return await client.get(path)


async def metric(program: Program, name: str) -> float:
    """Returns the value of a metric, the sum over its labels if it is named without; 0 when it was never set."""
    lines = (await get_admin(program, "/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


async def num_reclaimed(program: Program) -> tuple[float, float]:
    """Returns how many entries a worker has taken over of what others had released, and of those that fell silent."""
    released, silent = [
        await metric(program, f'redbatch_reclaimed_total{{origin="{each}"}}') for each in ("released", "silent")
    ]
    return released, silent


async def submit_and_check(cluster: WorkerCluster, batches: Iterable[Sequence[Sequence[str]]]) -> None:
    """Submits several lots of entries at once and checks every answer."""

    async def one(entries: Sequence[Sequence[str]]) -> None:
        await cluster.check_replies(await cluster.submit_many(entries))

    await asyncio.gather(*(one(entries) for entries in batches))
