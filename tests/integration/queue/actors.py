"""A gateway and a worker, with defaults for the arguments that a test does not vary."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shared import consumer, producer
from shared.codec import decode_reply, encode_body, encode_reply
from shared.connection import RedisConnection
from shared.consumer import ClaimBudget, ClaimResult, CommitOptions, EntryAnswer
from shared.keys import INTERACTIVE, Keys
from shared.messages import EMBED, MAX_TOKENS, Body, Entry, Failure, Heartbeat, NewEntry, Ref
from shared.producer import QueueBound, Submission, SubmitReply

T = TypeVar("T")

BOUND = 20_000
BUDGET_MS = 60_000
GRACE_MS = 10_000
ROUNDS = 50
"""Rounds of a race."""

MAX_DELAY_S = 0.002


async def after_random_delay(awaitable: Awaitable[T]) -> T:
    """Awaits after a random delay, so that each side of a race is first in some rounds."""
    await asyncio.sleep(random.random() * MAX_DELAY_S)
    return await awaitable


def request(  # noqa: PLR0913 - one keyword for each thing that many tests vary
    *,
    request_id: str = "",
    entries: int = 1,
    n: int = 1,
    cost: int = 10,
    budget_ms: int = BUDGET_MS,
    bell: str = "",
    lane: int = INTERACTIVE,
) -> Submission:
    """Returns a request of `entries` entries with n inputs each; tests replace the other fields."""
    request_id = request_id or uuid.uuid4().hex
    new_entries = [
        NewEntry(i * n, n, cost, encode_body(Body(EMBED, tuple(f"{request_id} {i * n + j}" for j in range(n)))))
        for i in range(entries)
    ]
    return Submission(request_id, tuple(new_entries), budget_ms, lane, bell=bell)


def answer(entry: Entry, message: str = "done", died_of: str = "") -> EntryAnswer:
    """Returns an answer that a test can identify: a failure with this message."""
    reply = encode_reply(Failure(entry.request_id, entry.position, entry.ref.n, "internal", message))
    return EntryAnswer(entry, reply, died_of)


def message_of(reply: bytes) -> str:
    """Returns the message that was passed to `answer`."""
    decoded = decode_reply(reply)
    assert isinstance(decoded, Failure)
    return decoded.message


@dataclass
class Gateway:
    """Submits, with growing sequence numbers."""

    connection: RedisConnection
    keys: Keys
    name: str = "gateway-1"
    sequences: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def submit(self, *requests: Submission, bound: int = BOUND, max_tokens: int = MAX_TOKENS) -> SubmitReply:
        """Submits requests in one call."""
        queue_bound = QueueBound(bound, max_tokens)
        return await producer.submit(self.connection, self.keys, self.name, next(self.sequences), queue_bound, requests)

    async def add(self, *requests: Submission) -> list[Ref]:
        """Submits requests that must be accepted, and returns the locations of all their entries."""
        reply = await self.submit(*requests)
        assert [outcome.status for outcome in reply.outcomes] == ["ok"] * len(requests)
        return [ref for outcome in reply.outcomes for ref in outcome.refs]


@dataclass
class Worker:
    """Claims and answers under one name."""

    connection: RedisConnection
    keys: Keys
    name: str

    async def claim(
        self, entries: int = 256, tokens: int = 10**9, workers: int = 1, held: int = 0
    ) -> tuple[Entry, ...]:
        """Claims entries; none of them may be malformed."""
        claimed = await consumer.claim(
            self.connection, self.keys, self.name, ClaimBudget(entries, tokens, workers, held)
        )
        assert claimed.malformed == ()
        return claimed.entries

    async def commit(self, entries: Sequence[Entry], message: str = "done", grace_ms: int = GRACE_MS) -> list[bool]:
        """Answers entries; returns for each whether this was the answer that counted."""
        options = CommitOptions(self.name, grace_ms)
        return await consumer.commit(self.connection, self.keys, [answer(entry, message) for entry in entries], options)

    async def give_up(
        self, entries: Sequence[Entry], died_of: str = "input_failed: it kills", max_dead_letters: int = 10
    ) -> list[bool]:
        """Answers entries with an error and a dead letter; returns for each whether this answer counted."""
        options = CommitOptions(self.name, GRACE_MS, max_dead_letters)
        return await consumer.commit(
            self.connection, self.keys, [answer(entry, died_of=died_of) for entry in entries], options
        )

    async def reclaim(
        self, idle_ms: int = 0, owner: str = "", max_entries: int = 256, revision: str = ""
    ) -> tuple[Entry, ...]:
        """Reclaims now."""
        query = consumer.ReclaimQuery(idle_ms, owner, max_entries, revision=revision)
        return (await self.reclaim_in_time(query)).entries

    async def reclaim_in_time(self, query: consumer.ReclaimQuery) -> ClaimResult:
        """Reclaims by a query; a call that reaches Redis too late, after a stall, takes nothing and is issued again."""
        while True:
            claimed = await consumer.reclaim(self.connection, self.keys, self.name, await self.now_ms(), query)
            if claimed is not None:
                return claimed

    async def read_own_entries(self, max_entries: int = 256, *, restarted: bool = False) -> list[ClaimResult]:
        """Reads its own entries to the end, in pages of up to `max_entries`."""
        pages: list[ClaimResult] = []
        while not pages or pages[-1].cursor:
            pages.append(
                await self.read_own_page(max_entries, restarted=restarted, cursor=pages[-1].cursor if pages else "")
            )
        return pages

    async def read_own_page(self, max_entries: int = 256, *, restarted: bool = False, cursor: str = "") -> ClaimResult:
        """Reads a page of the entries that it holds."""
        return await self.reclaim_in_time(consumer.ReclaimQuery(0, self.name, max_entries, restarted, cursor=cursor))

    async def reclaim_at(self, issued_ms: int) -> ClaimResult | None:
        """Reclaims with this issue time (Redis' clock)."""
        return await consumer.reclaim(self.connection, self.keys, self.name, issued_ms, consumer.ReclaimQuery(0))

    async def renew(self, entries: Sequence[Entry]) -> list[bool]:
        """Renews; returns for each entry whether this worker still owns it."""
        return list((await consumer.renew(self.connection, self.keys, self.name, entries)).owned)

    async def hand_back(self, entries: Sequence[Entry]) -> int:
        """Hands entries back; returns how many this worker still owned."""
        return await consumer.hand_back(self.connection, self.keys, self.name, entries)

    async def mark_begun(self, entries: Sequence[Entry]) -> None:
        """Records the entries that it begins to run."""
        await consumer.mark_begun(self.connection, self.keys, self.name, entries)

    async def beat(self, ttl_ms: int = 5_000) -> tuple[int, int]:
        """Sends a heartbeat; returns Redis' clock and the number of live workers."""
        beat = Heartbeat(self.name, "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
        return await consumer.heartbeat(self.connection, self.keys, beat, ttl_ms)

    async def leave(self) -> int:
        """Removes its name from the group; returns how many entries it owes."""
        return await consumer.leave(self.connection, self.keys, self.name)

    async def now_ms(self) -> int:
        """Returns Redis' clock."""
        seconds, microseconds = await self.connection.call("TIME")
        return int(seconds) * 1_000 + int(microseconds) // 1_000
