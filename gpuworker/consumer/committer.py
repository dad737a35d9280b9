"""Commits replies: those that are ready go in one script call, which is repeated until Redis has answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from gpuworker import metrics
from gpuworker.consumer.inflight import InFlightEntry, key_of
from gpuworker.consumer.worker_state import COMMIT, ShardState
from shared import consumer, jobs
from shared.codec import encode_body, encode_reply
from shared.connection import RedisConnection
from shared.consumer import CommitOptions, EntryAnswer
from shared.errors import DeadlineExceededError, InvalidRequestError, RedisUnreachableError
from shared.messages import UNKNOWN_ORIGIN, Body, Entry, Failure, FailureOrigin, Ref, Reply, TooLong
from shared.process.backoff import Backoff
from shared.process.limited_log import LimitedLog
from shared.redis_errors import UnexpectedReplyError

log, limited_log = structlog.get_logger(), LimitedLog()

RETRY_MIN_S = 0.05
RETRY_MAX_S = 1.0
MAX_ANSWERS = 256
MAX_BYTES = 8 * 2**20


class Committer:
    """Writes answers to the Redis of a shard."""

    def __init__(self, shard: ShardState, connection: RedisConnection) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._connection = connection
        settings = self._worker_state.settings
        self._options = CommitOptions(
            self._worker_state.worker, int(settings.reply_ttl_s * 1000), settings.retries.max_dead_letters
        )
        self._pending: list[EntryAnswer] = []
        self._max_answers = MAX_ANSWERS
        self._to_hand_back: list[Entry] = []
        self._to_refuse: list[Entry] = []
        self._to_split: list[InFlightEntry] = []
        self._to_discard: list[Ref] = []
        self._wake = asyncio.Event()

    def answer(
        self, in_flight_entry: InFlightEntry, reply: Reply, died_of: str = "", dead_after: int | None = None
    ) -> None:
        """Commits a reply soon. Until then the entry stays in flight, so that it is renewed.

        With `died_of`, the entry becomes a dead letter after `dead_after` runs.
        """
        self._worker_state.in_flight.mark_answered(in_flight_entry)
        encoded, is_failure = encode_reply(reply), isinstance(reply, Failure)
        num_truncated, num_tokens = (0, 0) if isinstance(reply, Failure) else (len(reply.truncated), sum(reply.tokens))
        entry, code = in_flight_entry.entry, reply.code if isinstance(reply, Failure) else ""
        if not _is_sent_again(entry, code):
            # What is the client's own fault says nothing about this queue.
            self._record(in_flight_entry, failed=code not in ("", InvalidRequestError.code))
        if dead_after is not None:  # not in the entry in flight: another worker would believe that it killed engines
            entry = entry._replace(attempts=dead_after)
        self._pending.append(EntryAnswer(entry, encoded, died_of, is_failure, num_truncated, num_tokens))
        self._wake.set()

    def _record(self, in_flight_entry: InFlightEntry, *, failed: bool) -> None:
        now, activity, entry = time.monotonic(), self._shard.activity, in_flight_entry.entry
        if failed:
            activity.record_error(now)
        if not entry.job:  # which waits for capacity, not for its turn
            waited_ms = 1000 * (now - in_flight_entry.submitted)
            activity.record_answer(now, waited_ms, num_requests=0 if entry.position else entry.num_coalesced)

    def fail(  # noqa: PLR0913 - each is optional
        self,
        in_flight_entry: InFlightEntry,
        code: str,
        message: str,
        *,
        dead_after: int | None = None,
        input_index: int | None = None,
        origin: FailureOrigin = UNKNOWN_ORIGIN,
        too_long: TooLong | None = None,
    ) -> None:
        """Commits an error soon; with `dead_after`, the number of its runs, the entry is kept among the dead letters.

        If one of its inputs is known to be at fault, `input_index` is the index of that input in the entry. `origin`
        has what is known of the cause: the type of what the model raised, or that nothing has run; `too_long` is the
        length of an input that is too long.

        For a job, only those inputs are to fail that cannot run: an entry of several inputs is split into entries of
        one input each instead, unless its deadline has passed. An entry of coalesced requests that are sent again
        becomes no dead letter, and is not counted.
        """
        entry = in_flight_entry.entry
        if self._worker_state.spans is not None:
            self._worker_state.spans.record_failure(in_flight_entry.key, code)
        if entry.job and len(in_flight_entry.inputs) > 1 and code != DeadlineExceededError.code:
            self._worker_state.in_flight.mark_answered(in_flight_entry)
            self._to_split.append(in_flight_entry)
            self._wake.set()
            return
        if _is_sent_again(entry, code):
            dead_after = None
        else:
            metrics.FAILURES.labels(code).inc()
        if entry.job:  # whose failures no gateway logs, and Redis keeps
            origin = UNKNOWN_ORIGIN
        else:
            is_dead = dead_after is not None and self._options.max_dead_letters > 0
            origin = origin._replace(worker=self._worker_state.worker, is_dead=is_dead)
        reply = Failure(entry.request_id, entry.position, entry.ref.n, code, message, input_index, origin, too_long)
        self.answer(in_flight_entry, reply, "" if dead_after is None else f"{code}: {message}", dead_after)

    def hand_back(self, entries: Sequence[Entry]) -> None:
        """Hands entries back to other workers soon."""
        self._to_hand_back += entries
        self._wake.set()

    def refuse(self, entry: Entry) -> None:
        """Hands an entry that this worker does not understand back to others soon, out of the way of other entries."""
        self._to_refuse.append(entry)
        self._wake.set()

    def discard(self, ref: Ref) -> None:
        """Soon removes an entry that names no request."""
        log.warning("malformed entry removed", stream_id=ref.entry_id.decode())
        self._to_discard.append(ref)
        self._wake.set()

    async def run(self) -> None:
        """Commits until cancelled."""
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._commit_pending()
                self._shard.record_call(COMMIT, is_answered=True)
                self._note_reached(is_reached=True)
                backoff.reset()
            except RedisUnreachableError as error:
                self._shard.record_call(COMMIT, is_answered=False)
                self._note_reached(is_reached=isinstance(error, UnexpectedReplyError))
                limited_log.write(logging.WARNING, "cannot commit", reason=error.log_message, redis=self._shard.address)
                self._wake.set()
                await backoff.wait()

    def _note_reached(self, *, is_reached: bool) -> None:
        """Notes whether answers reach Redis: if not, nothing is claimed, though other connections may be open."""
        shard = self._shard
        if not is_reached:
            shard.uncommitted_since = shard.uncommitted_since or time.monotonic()
        elif shard.uncommitted_since is not None:
            shard.uncommitted_since = None
            self._worker_state.in_flight.wake_claimers()

    async def _commit_pending(self) -> None:
        failure = await self._commit_answers()
        while self._to_split:
            await self._split(self._to_split[0])
            del self._to_split[0]
        self._to_hand_back = await self._hand_back_batch(self._to_hand_back, consumer.RELEASED_IDLE_MS)
        self._to_refuse = await self._hand_back_batch(self._to_refuse, 0)
        if self._to_discard:
            refs = list(self._to_discard)
            await consumer.discard(self._connection, self._shard.keys, refs)
            self._to_discard = self._to_discard[len(refs) :]
        if failure is not None:
            raise failure

    async def _commit_answers(self) -> UnexpectedReplyError | None:
        """Commits all answers, or those before one on which Redis fails: that goes behind the others."""
        while self._pending:
            answers = self._next_answers()
            try:
                await self._commit(answers)
            except UnexpectedReplyError as error:
                self._max_answers = max(1, len(answers) // 2)  # any of them may be the reason
                if len(answers) == 1:
                    self._pending = [*self._pending[1:], *answers]
                    return error
                continue
            self._max_answers = min(MAX_ANSWERS, 2 * self._max_answers)
        return None

    async def _split(self, in_flight_entry: InFlightEntry) -> None:
        """Replaces an entry of a job by one entry for each of its inputs."""
        bodies = [
            encode_body(Body(in_flight_entry.op, (each,), in_flight_entry.options)) for each in in_flight_entry.inputs
        ]
        await jobs.split_entry(self._connection, self._shard.keys, in_flight_entry.entry, bodies)
        if self._worker_state.spans is not None:
            self._worker_state.spans.record_answers([in_flight_entry.key])
        self._worker_state.in_flight.remove([in_flight_entry.key])

    async def _hand_back_batch(self, waiting: list[Entry], idle_ms: int) -> list[Entry]:
        """Hands entries back; returns those that were added meanwhile."""
        entries = list(waiting)
        if entries:
            await consumer.hand_back(self._connection, self._shard.keys, self._worker_state.worker, entries, idle_ms)
            metrics.HANDED_BACK.inc(len(entries))
            self._worker_state.in_flight.remove(self._keys_of(entries))
        return waiting[len(entries) :]

    def _next_answers(self) -> list[EntryAnswer]:
        size = count = 0
        for answer in self._pending[: self._max_answers]:
            size += len(answer.reply)
            if count and size > MAX_BYTES:
                break
            count += 1
        return self._pending[:count]

    async def _commit(self, answers: list[EntryAnswer]) -> None:
        if self._options.revision != self._worker_state.revision:
            self._options = replace(self._options, revision=self._worker_state.revision)
        won = await consumer.commit(self._connection, self._shard.keys, answers, self._options)
        dead = [answer.entry for answer, first in zip(answers, won, strict=True) if first and answer.died_of]
        if dead:
            metrics.DEAD_LETTERS.inc(len(dead))
            log.warning("entries given up", n=len(dead), see="redbatch dead list")
        self._pending = self._pending[len(answers) :]
        keys = self._keys_of(answer.entry for answer in answers)
        for key, answer, first in zip(keys, answers, won, strict=True):
            if first and not answer.failed:
                self._worker_state.count_answer(key, answer.num_tokens)
        if self._worker_state.spans is not None:
            self._worker_state.spans.record_answers(keys)
        self._worker_state.in_flight.remove(keys)
        if any(answer.entry.job for answer in answers):
            self._shard.job_entries_answered.set()
        metrics.COMMITS_ANSWERED.inc(sum(won))
        metrics.COMMITS_FOUND_NOTHING.inc(len(won) - sum(won))

    def _keys_of(self, entries: Iterable[Entry]) -> list[str]:
        return [key_of(entry, self._shard.number) for entry in entries]


def _is_sent_again(entry: Entry, code: str) -> bool:
    """Whether the gateway of an entry that fails with a code sends each of its requests again (api.dispatch)."""
    return entry.num_coalesced > 1 and code not in ("", DeadlineExceededError.code)
