"""Commits replies: whatever is ready goes in one script call, and is repeated until Redis has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import Context
from gpuworker.consumer.inflight import Holding, key_of
from shared import jobs
from shared import consumer
from shared.codec import encode_body, encode_reply
from shared.consumer import Answer, Committing
from shared.errors import DeadlineExceeded, RedisUnreachable
from shared.messages import Body, Entry, Failure, Ref, Reply
from shared.connection import Link

log = structlog.get_logger()

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0
MOST_ANSWERS = 256
MOST_BYTES = 8 * 2**20


class Committer:
    """The way of answers into Redis."""

    def __init__(self, context: Context, link: Link) -> None:
        self._context = context
        self._link = link
        settings = context.settings
        self._how = Committing(context.worker, int(settings.reply_ttl_s * 1000), settings.max_dead_letters)
        self._answers: list[Answer] = []
        self._handed_back: list[Entry] = []
        self._refused: list[Entry] = []
        self._split: list[Holding] = []
        self._malformed: list[Ref] = []
        self._wake = asyncio.Event()

    def answer(self, holding: Holding, reply: Reply, died_of: str = "") -> None:
        """Commits a reply soon. The entry stays in hand until then, so that it is renewed."""
        holding.answered = True
        self._answers.append(Answer(holding.entry, encode_reply(reply), died_of, isinstance(reply, Failure)))
        self._wake.set()

    def fail(self, holding: Holding, code: str, message: str, *, dead: bool = False) -> None:
        """Commits an error soon; `dead` has the entry kept among the dead letters.

        Of a job, those inputs are to fail alone that cannot run: the others get entries of their own instead.
        """
        entry = holding.entry
        if self._context.spans is not None:
            self._context.spans.failed(key_of(entry), code)
        if entry.job and len(holding.inputs) > 1 and code != DeadlineExceeded.code:
            holding.answered = True
            self._split.append(holding)
            self._wake.set()
            return
        metrics.FAILURES.labels(code).inc()
        reply = Failure(entry.request_id, entry.position, entry.ref.n, code, message)
        self.answer(holding, reply, f"{code}: {message}" if dead else "")

    def hand_back(self, entries: Sequence[Entry]) -> None:
        """Gives entries to other workers soon."""
        self._handed_back += entries
        self._wake.set()

    def refuse(self, entry: Entry) -> None:
        """Gives an entry that this worker does not understand to others soon, out of the way of the rest."""
        self._refused.append(entry)
        self._wake.set()

    def discard(self, ref: Ref) -> None:
        """Removes an entry that names no request, soon."""
        log.warning("malformed entry removed", stream_id=ref.entry_id.decode())
        self._malformed.append(ref)
        self._wake.set()

    async def run(self) -> None:
        """Works until cancelled."""
        pause_s = RETRY_FIRST_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._work()
                pause_s = RETRY_FIRST_S
            except RedisUnreachable as error:
                log.warning("cannot commit", reason=error.message)
                self._wake.set()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)

    async def _work(self) -> None:
        while self._answers:
            await self._commit(self._next_answers())
        while self._split:
            await self._split_up(self._split[0])
            del self._split[0]
        self._handed_back = await self._give(self._handed_back, consumer.RELEASED_IDLE_MS)
        self._refused = await self._give(self._refused, 0)
        if self._malformed:
            refs = list(self._malformed)
            await consumer.discard(self._link, self._context.keys, refs)
            self._malformed = self._malformed[len(refs) :]

    async def _split_up(self, holding: Holding) -> None:
        """Makes an entry of each input of one of a job."""
        bodies = [encode_body(Body(holding.op, (each,), holding.options)) for each in holding.inputs]
        await jobs.split(self._link, self._context.keys, holding.entry, bodies)
        if self._context.spans is not None:
            self._context.spans.answered([holding.entry])
        self._context.hands.release([key_of(holding.entry)])

    async def _give(self, waiting: list[Entry], idle_ms: int) -> list[Entry]:
        """Hands entries back; returns those that came meanwhile."""
        entries = list(waiting)
        if entries:
            await consumer.hand_back(self._link, self._context.keys, self._context.worker, entries, idle_ms)
            metrics.HANDED_BACK.inc(len(entries))
            self._context.hands.release(key_of(entry) for entry in entries)
        return waiting[len(entries) :]

    def _next_answers(self) -> list[Answer]:
        size = count = 0
        for answer in self._answers[:MOST_ANSWERS]:
            size += len(answer.reply)
            if count and size > MOST_BYTES:
                break
            count += 1
        return self._answers[:count]

    async def _commit(self, answers: list[Answer]) -> None:
        how = replace(self._how, revision=self._context.revision)
        won = await consumer.commit(self._link, self._context.keys, answers, how)
        dead = [answer.entry for answer, first in zip(answers, won, strict=True) if first and answer.died_of]
        if dead:
            metrics.DEAD_LETTERS.inc(len(dead))
            log.warning("entries given up", n=len(dead), see="redbatch dead list")
        self._answers = self._answers[len(answers) :]
        if self._context.spans is not None:
            self._context.spans.answered([answer.entry for answer in answers])
        self._context.hands.release(key_of(answer.entry) for answer in answers)
        if any(answer.entry.job for answer in answers):
            self._context.jobs_moved.set()
        metrics.COMMITS.labels("answered").inc(sum(won))
        metrics.COMMITS.labels("found nothing").inc(len(won) - sum(won))
        metrics.HELD.labels(self._context.worker).set(len(self._context.hands))
