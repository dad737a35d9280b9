"""Turns results of the engine into answers, metrics and the measured rate."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuworker import metrics
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.inflight import InFlightEntry, shard_of
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.ipc import framing
from gpuworker.ipc.messages import BatchCompleted, EntryResult
from gpuworker.policy.token_rate import BatchLoad
from shared.keys import INTERACTIVE
from shared.messages import TOKENIZER_OPS, Entry, FailureOrigin, Result, Timing, Values, Vectors


class ResultHandler:
    """Passes results from the engine to the committers.

    Args:
        worker_state: of the worker.
        committers: one for each shard, in their order.
    """

    def __init__(self, worker_state: WorkerState, committers: Sequence[Committer]) -> None:
        self._worker_state = worker_state
        self._committers = committers
        self._device_busy = metrics.DEVICE_BUSY.labels(worker_state.worker)
        self._error_types: set[str] = set()

    def handle(self, completed: BatchCompleted, payload: bytes) -> None:
        """Answers the entries of a completed batch and records its measurements."""
        if self._worker_state.spans is not None:
            self._worker_state.spans.record_batch(completed)
        self._answer_completed(completed, payload)
        for failure in completed.failures:
            in_flight_entry = self._find(failure.key, failure.device_s)
            if in_flight_entry is not None and not in_flight_entry.answered:
                self._committers[in_flight_entry.shard].fail(
                    in_flight_entry,
                    failure.code,
                    failure.message,
                    dead_after=failure.dead_after,
                    input_index=failure.input_index,
                    origin=FailureOrigin(
                        exception=failure.exception, unrun=failure.unrun, is_loggable=failure.is_loggable
                    ),
                    too_long=failure.too_long,
                )
        if not completed.more:
            self._count_errors(completed)
            if completed.size:
                self._measure(completed)

    def _answer_completed(self, completed: BatchCompleted, payload: bytes) -> None:
        at = 0
        ran_ms = completed.run_s * 1000
        for done in completed.results:
            data, at = payload[at : at + done.size], at + done.size
            in_flight_entry = self._find(done.key, done.device_s)
            if in_flight_entry is None or in_flight_entry.answered:
                continue
            entry = in_flight_entry.entry
            # Operations of the tokenizer alone take no time of the device.
            if entry.ref.lane == INTERACTIVE and in_flight_entry.op not in TOKENIZER_OPS:
                self._worker_state.interactive_load.record(entry.ref.cost)
            queued = max(0.0, done.started_at - in_flight_entry.submitted)
            metrics.QUEUE_WAIT.observe(queued)
            timing = Timing(queued * 1000, ran_ms, done.batch_size, done.tokenize_s * 1000)
            self._committers[in_flight_entry.shard].answer(
                in_flight_entry, self._build_reply(entry, done, data, timing)
            )

    def _find(self, key: str, device_s: float) -> InFlightEntry | None:
        """Returns an entry that has ended in the engine, and counts its share of the device's time; None: it is gone.

        The device has spent that time whether or not the answer counts.
        """
        in_flight_entry = self._worker_state.in_flight.get(key)
        if in_flight_entry is not None and device_s:
            self._worker_state.usage_of(in_flight_entry).device_ms += 1000 * device_s
        return in_flight_entry

    def _build_reply(self, entry: Entry, done: EntryResult, data: bytes, timing: Timing) -> Result:
        request_id, position, n = entry.request_id, entry.position, entry.ref.n
        tokens, truncated, revision = done.tokens, done.truncated, self._worker_state.revision
        if not done.dim:
            return Values(request_id, position, n, framing.unpack_values(data), timing, tokens, revision, truncated)
        return Vectors(request_id, position, n, done.dim, data, timing, tokens, done.counts, revision, truncated)

    def _count_errors(self, completed: BatchCompleted) -> None:
        for error_type in completed.errors:
            if len(self._error_types) < metrics.MAX_ERROR_TYPES:
                self._error_types.add(error_type)
            known = error_type in self._error_types
            metrics.MODEL_ERRORS.labels(error_type if known else metrics.OTHER_ERROR).inc()

    def _measure(self, completed: BatchCompleted) -> None:
        size, tokens, padded, seconds = completed.size, completed.tokens, completed.padded_tokens, completed.run_s
        self._worker_state.shards[_shard_of(completed)].activity.record_batch(time.monotonic(), size)
        metrics.INPUTS.inc(size)
        metrics.BATCH_SIZE.observe(size)
        metrics.BATCH_TOKENS.observe(tokens)
        metrics.BATCH_PADDING.observe(1 - tokens / padded if padded else 0.0)
        metrics.INFERENCE.observe(seconds)
        metrics.BATCH_GAP.observe(completed.gap_s)
        self._device_busy.inc(completed.busy_s)
        is_saturated = completed.has_backlog or completed.is_full
        load = BatchLoad(completed.cost, completed.ended_at, seconds, completed.gap_s, is_saturated)
        self._worker_state.token_rate.record(load)


def _shard_of(completed: BatchCompleted) -> int:
    """Returns the shard for which a batch counts, so that it counts once: that of any of its entries."""
    keys = [each.key for each in completed.results[:1]] + [each.key for each in completed.failures[:1]]
    keys += completed.unfinished_keys[:1]
    return shard_of(keys[0]) if keys else 0
