"""Brings a job into Redis, portion by portion, and makes it."""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from api.dispatch.admission import limited
from api.dispatch.splitting import estimate_tokens
from api.jobs.inputs import Given
from shared import jobs
from shared.codec import encode_body
from shared.errors import InvalidRequest, JobsFull, KeyReused, NotDurable, RedbatchError, RedisUnreachable, Unavailable
from shared.jobs import Making, Room
from shared.messages import EMBED, Body, Draft, Failure

if TYPE_CHECKING:
    from api.jobs.store import Desk
    from api.settings import GatewaySettings
    from shared.messages import Heartbeat
    from shared.tenants import Limits

PORTION_BYTES = 2**20
PORTION_ENTRIES = 256
PORTION_S = 30.0
"""Of who sends slowly something goes to Redis so often: what is there is forgotten after jobs.UPLOAD_TTL_MS."""

UNKNOWN_DIM = 1_024
REPLY_BYTES = 64
"""What a result takes beside its vector, about."""

FULL_RETRY_S = 10.0
MAKE_TRIES = 3
MAKE_PAUSE_S = 0.3


class Wanted(NamedTuple):
    """How a job is to be made, but for its inputs.

    `tenant` owns it, and is held to its `limits`. `idempotency` is the client's key, if it sent one.
    """

    tenant: str
    lane: int
    idempotency: str = ""
    limits: Limits | None = None


class Upload:
    """One job on its way into Redis.

    Args:
        desk: of its queue.
        settings: have the bounds.
        wanted: how it is to be made.
    """

    def __init__(self, desk: Desk, settings: GatewaySettings, wanted: Wanted) -> None:
        self._desk = desk
        self._settings = settings
        self._wanted = wanted
        self._given: list[Given] = []
        self._drafts: list[Draft] = []
        self._failures: list[Failure] = []
        self._bytes = 0
        self._entries = 0
        self._failed = 0
        self._inputs = 0
        self._cost = 0
        self._put_at = time.monotonic()
        self._digest = hashlib.sha256(f"{wanted.lane}".encode())
        self.job_id = secrets.token_hex(16)
        self.lane = wanted.lane

    async def add(self, given: Sequence[Given]) -> None:
        """Takes in texts, and brings them to Redis a portion at a time. Raises Unavailable: Redis is away, or full."""
        self._given += given
        size = self._settings.inputs_per_entry
        start = 0
        while len(self._given) - start >= size:
            self._draft(self._given[start : start + size])
            start += size
            if self._bytes >= PORTION_BYTES or len(self._drafts) + len(self._failures) >= PORTION_ENTRIES:
                await self._put()
        del self._given[:start]
        if time.monotonic() - self._put_at > PORTION_S:
            await self._put()

    async def make(self, workers: Sequence[Heartbeat], traceparent: str = "") -> str:
        """Makes the job, and returns its id: that of an earlier one, if the same was asked for with the same key.

        Its entries carry `traceparent`.

        Raises:
            InvalidRequest: it has no texts.
            KeyReused: the key stands for something else.
            JobsFull: too much is asked for already.
            RateLimited: its tenant has had what it may have for now.
            NotDurable: it has not become as durable as it is to be. Without an idempotency key, it was cancelled.
            Unavailable: Redis is away, or full. With an idempotency key, it is safe to ask again.
        """
        self._draft(self._given)
        self._given = []
        if not self._inputs:
            raise InvalidRequest("There is no text: send at least one.")
        await self._put()
        dim = max((each.dim for each in workers), default=0) or UNKNOWN_DIM
        settings = self._settings
        room = Room(settings.max_owed_inputs, 4 * dim + REPLY_BYTES, settings.redis_memory_ratio)
        made = await self._made(self._making(traceparent), room)
        if made.status == "different":
            raise KeyReused("This Idempotency-Key stands for another job already: send another key.")
        if made.status == "lost":
            raise Unavailable("Redis has lost what came before: send the job again.")
        if made.status == "limited":
            raise limited(made.wait_ms, random.random())  # noqa: S311 - spreads clients
        if made.status == "full":
            raise JobsFull("There is no room for more jobs: try again later.", retry_after_s=FULL_RETRY_S)
        try:
            await self._desk.durability.confirm(settings.job_durability, settings.job_durable_s)
        except (NotDurable, RedisUnreachable):
            if made.status == "ok" and not self._wanted.idempotency:  # with a key, somebody else may count on it
                with suppress(RedisUnreachable):
                    await jobs.cancel(self._desk.writing, self._desk.keys, made.job_id)
            raise
        return made.job_id

    async def forget(self) -> None:
        """Removes what was put, as far as that can be done now; the rest goes by itself."""
        with suppress(RedbatchError):
            await jobs.forget(self._desk.writing, self._desk.keys, self.job_id)

    async def _made(self, making: Making, room: Room) -> jobs.Made:
        """Repeats a call whose answer was lost, which makes nothing twice."""
        for _ in range(MAKE_TRIES - 1):
            try:
                return await jobs.make(self._desk.writing, self._desk.keys, making, room)
            except RedisUnreachable:
                await asyncio.sleep(MAKE_PAUSE_S)
        return await jobs.make(self._desk.writing, self._desk.keys, making, room)

    def _making(self, traceparent: str) -> Making:
        tenant, settings = self._wanted.tenant, self._settings
        return Making(
            job_id=self.job_id,
            entries=self._entries,
            failed=self._failed,
            inputs=self._inputs,
            per_entry=settings.inputs_per_entry,
            owner=tenant,
            tenant=tenant,
            lane=self._wanted.lane,
            timeout_ms=int(settings.job_timeout_s * 1000),
            ttl_ms=int(settings.job_ttl_s * 1000),
            idempotency=_digest(f"{tenant}\0{self._wanted.idempotency}") if self._wanted.idempotency else "",
            digest=self._digest.hexdigest(),
            cost=self._cost,
            limits=self._wanted.limits,
            traceparent=traceparent,
        )

    def _draft(self, given: Sequence[Given]) -> None:
        """Makes entries of some inputs: one, or more where some of them cannot be run."""
        run: list[str] = []
        for each in [*given, None]:
            if isinstance(each, str):
                run.append(each)
                continue
            if run:
                self._draft_texts(run)
                run = []
            if each is not None:
                self._digest.update(each.code.encode())
                self._failures.append(Failure(self.job_id, self._inputs, 1, each.code, each.message))
                self._inputs += 1

    def _draft_texts(self, texts: Sequence[str]) -> None:
        body = encode_body(Body(EMBED, tuple(texts)))
        self._digest.update(body)
        cost = sum(map(estimate_tokens, texts))
        self._drafts.append(Draft(self._inputs, len(texts), cost, body))
        self._inputs += len(texts)
        self._cost += cost
        self._bytes += len(body)

    async def _put(self) -> None:
        if self._drafts or self._failures:
            self._entries += len(self._drafts)
            self._failed += len(self._failures)
            await jobs.put(self._desk.writing, self._desk.keys, self.job_id, self._drafts, self._failures)
            self._drafts, self._failures, self._bytes, self._put_at = [], [], 0, time.monotonic()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
