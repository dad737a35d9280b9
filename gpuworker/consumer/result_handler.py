"""Turns what the engine ran into answers and measures."""

from __future__ import annotations

from typing import Any

from gpuworker import metrics
from gpuworker.ipc import frames
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.worker_state import Context
from gpuworker.ipc.frames import Header
from shared.keys import INTERACTIVE
from shared.messages import READING, Entry, Result, Timing, Values, Vectors

DECAY = 0.9
"""Weight of the past in the measured rate, batch by batch."""


class Results:
    """The way of results from the engine to the committer."""

    def __init__(self, context: Context, committer: Committer) -> None:
        self._context = context
        self._committer = committer
        self._answered_cost = 0
        self._cost = 0.0
        self._seconds = 0.0
        self._ended = 0.0
        self._saturated = False

    def take(self, header: Header, payload: bytes) -> None:
        """Answers the entries of a `ran` frame and takes in its measures."""
        if self._context.spans is not None:
            self._context.spans.ran(header)
        self._answered_cost += self._answer_done(header, payload)
        for failure in header["failed"]:
            holding = self._context.hands.get(failure["key"])
            if holding is not None and not holding.answered:
                self._committer.fail(holding, failure["code"], failure["message"])
        if not header["more"]:
            cost, self._answered_cost = self._answered_cost, 0
            if header["size"]:
                self._measure(header, cost)

    def _answer_done(self, header: Header, payload: bytes) -> int:
        cost = at = 0
        ran_ms, size = header["seconds"] * 1000, header["size"]
        for done in header["done"]:
            data, at = payload[at : at + done["bytes"]], at + done["bytes"]
            holding = self._context.hands.get(done["key"])
            if holding is None or holding.answered:
                continue
            entry = holding.entry
            cost += entry.ref.cost
            if entry.ref.lane == INTERACTIVE and holding.op not in READING:  # which takes nothing of the device
                self._context.demand.ran(entry.ref.cost)
            submitted = self._context.clock.monotonic(int(entry.ref.entry_id.split(b"-")[0]))
            queued = max(0.0, done["began"] - submitted)
            metrics.QUEUE_WAIT.observe(queued)
            timing = Timing(queued * 1000, ran_ms, size, done["read_s"] * 1000)
            self._committer.answer(holding, self._reply(entry, done, data, timing))
        return cost

    def _reply(self, entry: Entry, done: dict[str, Any], data: bytes, timing: Timing) -> Result:
        request_id, position, n, tokens = entry.request_id, entry.position, entry.ref.n, tuple(done["tokens"])
        if "dim" not in done:
            return Values(request_id, position, n, frames.unpack(data), timing, tokens)
        counts = tuple(done["counts"]) if "counts" in done else ()
        return Vectors(request_id, position, n, done["dim"], data, timing, tokens, counts, self._context.revision)

    def _measure(self, header: Header, cost: int) -> None:
        size, tokens, padded, seconds = header["size"], header["tokens"], header["padded"], header["seconds"]
        metrics.INPUTS.inc(size)
        metrics.BATCH_SIZE.observe(size)
        metrics.BATCH_TOKENS.observe(tokens)
        metrics.BATCH_PADDING.observe(1 - tokens / padded if padded else 0.0)
        metrics.INFERENCE.observe(seconds)
        metrics.BATCH_GAP.observe(header["gap"])
        metrics.DEVICE_BUSY.labels(self._context.worker).inc(header["busy_s"])
        self._rate(cost, header)

    def _rate(self, cost: int, header: Header) -> None:
        """Measures what the engine can do: while more waits than runs, or a batch is full.

        Otherwise it does what it is asked for, and that says nothing.

        An entry counts with its last batch, so the batch after the last of these counts too.
        Batches that ran side by side count for the time that they took together. Without a wait for fuller batches the
        time from one to the next counts as well, where neither could take all there was: on a busy machine it is long.
        """
        ended, saturated = header["ended"], header["behind"] or header["full"]
        began = ended - header["seconds"]
        if saturated and self._saturated and self._context.settings.max_batch_wait_ms == 0:
            began -= header["gap"]
        busy = max(0.0, ended - max(self._ended, began))
        self._ended = max(self._ended, ended)
        counts, self._saturated = saturated or self._saturated, saturated
        if counts:
            self._cost = DECAY * self._cost + cost
            self._seconds = DECAY * self._seconds + busy
        if counts and cost:  # between entries that take several batches, it would look slower than it is
            self._context.tokens_per_s = self._cost / max(self._seconds, 1e-9)
            metrics.TOKEN_RATE.labels(self._context.worker).set(self._context.tokens_per_s)
