"""The two sides of the queue, with the arguments that a test does not care about filled in."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shared import consumer
from shared import producer
from shared.codec import decode_reply, encode_body, encode_reply
from shared.consumer import Allowance, Answer, Claimed, Committing
from shared.keys import INTERACTIVE, Keys
from shared.messages import EMBED, Body, Draft, Entry, Failure, Heartbeat, Ref
from shared.connection import Link
from shared.producer import Bound, Submission, SubmitReply

T = TypeVar("T")

BOUND = 20_000
BUDGET_MS = 60_000
GRACE_MS = 10_000
ROUNDS = 50
"""Of a race."""

SOON_S = 0.002


async def soon(what: Awaitable[T]) -> T:
    """Does it after a random moment, so that now this side of a race is first and now that."""
    await asyncio.sleep(random.random() * SOON_S)
    return await what


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
    """Returns a request of some entries with n inputs each; what few tests vary, they replace."""
    request_id = request_id or uuid.uuid4().hex
    drafts = [
        Draft(at * n, n, cost, encode_body(Body(EMBED, tuple(f"{request_id} {at * n + i}" for i in range(n)))))
        for at in range(entries)
    ]
    return Submission(request_id, tuple(drafts), budget_ms, lane, bell=bell)


def answer(entry: Entry, said: str = "done", died_of: str = "") -> Answer:
    """Returns a reply to an entry that a test can tell from others: a failure whose message is `said`."""
    reply = encode_reply(Failure(entry.request_id, entry.position, entry.ref.n, "internal", said))
    return Answer(entry, reply, died_of)


def said(reply: bytes) -> str:
    """Returns what `answer` was given."""
    decoded = decode_reply(reply)
    assert isinstance(decoded, Failure)
    return decoded.message


@dataclass
class Gateway:
    """Submits, one sequence number after the other."""

    link: Link
    keys: Keys
    name: str = "gateway-1"
    sequences: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def submit(self, *requests: Submission, bound: int = BOUND) -> SubmitReply:
        """Submits some requests in one call."""
        return await producer.submit(self.link, self.keys, self.name, next(self.sequences), Bound(bound), requests)

    async def add(self, *requests: Submission) -> list[Ref]:
        """Submits requests that must be taken, and returns where all their entries are."""
        reply = await self.submit(*requests)
        assert [outcome.status for outcome in reply.outcomes] == ["ok"] * len(requests)
        return [ref for outcome in reply.outcomes for ref in outcome.refs]


@dataclass
class Worker:
    """Claims and answers under one name."""

    link: Link
    keys: Keys
    name: str

    async def claim(
        self, entries: int = 256, tokens: int = 10**9, workers: int = 1, held: int = 0
    ) -> tuple[Entry, ...]:
        """Claims what it may; nothing of it may be malformed."""
        claimed = await consumer.claim(self.link, self.keys, self.name, Allowance(entries, tokens, workers, held))
        assert claimed.malformed == ()
        return claimed.entries

    async def commit(self, entries: Sequence[Entry], said: str = "done", grace_ms: int = GRACE_MS) -> list[bool]:
        """Answers entries; returns for each whether this was the answer that counted."""
        how = Committing(self.name, grace_ms)
        return await consumer.commit(self.link, self.keys, [answer(entry, said) for entry in entries], how)

    async def bury(
        self, entries: Sequence[Entry], died_of: str = "input_failed: it kills", most: int = 10
    ) -> list[bool]:
        """Gives entries up; returns for each whether this was the answer that counted."""
        how = Committing(self.name, GRACE_MS, most)
        return await consumer.commit(self.link, self.keys, [answer(entry, died_of=died_of) for entry in entries], how)

    async def reclaim(
        self, idle_ms: int = 0, owner: str = "", most: int = 256, revision: str = ""
    ) -> tuple[Entry, ...]:
        """Reclaims as of now."""
        search = consumer.Abandoned(idle_ms, owner, most, revision=revision)
        claimed = await consumer.reclaim(self.link, self.keys, self.name, await self.now_ms(), search)
        assert claimed is not None
        return claimed.entries

    async def reclaim_at(self, issued_ms: int) -> Claimed | None:
        """Reclaims as issued at a time of Redis' clock."""
        return await consumer.reclaim(self.link, self.keys, self.name, issued_ms, consumer.Abandoned(0))

    async def renew(self, entries: Sequence[Entry]) -> list[bool]:
        """Renews; returns for each entry whether it is still its own."""
        return list((await consumer.renew(self.link, self.keys, self.name, entries)).owned)

    async def hand_back(self, entries: Sequence[Entry]) -> int:
        """Hands entries back; returns how many were its own to give."""
        return await consumer.hand_back(self.link, self.keys, self.name, entries)

    async def mark_begun(self, entries: Sequence[Entry]) -> None:
        """Says which entries it begins to run."""
        await consumer.mark_begun(self.link, self.keys, self.name, entries)

    async def beat(self, ttl_ms: int = 5_000) -> tuple[int, int]:
        """Says that it lives; returns Redis' clock and the number of live workers."""
        beat = Heartbeat(self.name, "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
        return await consumer.heartbeat(self.link, self.keys, beat, ttl_ms)

    async def leave(self) -> int:
        """Takes its name out of the group; returns what it owes."""
        return await consumer.leave(self.link, self.keys, self.name)

    async def now_ms(self) -> int:
        """Returns Redis' clock."""
        seconds, microseconds = await self.link.call("TIME")
        return int(seconds) * 1_000 + int(microseconds) // 1_000
