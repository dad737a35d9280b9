"""The spans of a worker: one for each batch, and its stages as children. Only imported when requests are traced.

The spans of a batch are created when its last answer is in Redis, from times that the engine reports. The engine is
another process, and has no tracing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, StatusCode, Tracer, set_span_in_context

from gpuworker.consumer.inflight import InFlightEntries
from gpuworker.ipc.messages import BatchCompleted
from shared.keys import GROUP
from shared.messages import Entry
from shared.process.tracing.suppress_errors import suppress_errors
from shared.process.tracing.traceparent import parse_traceparent

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

MAX_LINKS = 128
"""Links of a batch: OpenTelemetry keeps no more of a span."""

MAX_TOKENIZATIONS = 32
"""Calls of the tokenizer that have a span, in a batch."""

NS = 1_000_000_000


@dataclass(slots=True)
class _Batch:
    """A batch as reported so far, by one message or by several.

    Attributes:
        pending: keys of the entries whose answers are not in Redis yet.
        entries: number of its entries.
        links: to the requests of its entries that are traced.
        tokenizations: when the calls of the tokenizer ended that read its inputs (monotonic clock), and their s.
        error: code of the first entry that failed; empty without one.
        ran: its measurements, from the last message.
        complete: whether no more messages follow.
        has_answers: whether any entry is answered by it.
        received_at: when the first message arrived (monotonic clock).
    """

    pending: set[str] = field(default_factory=set)
    entries: int = 0
    links: list[Link] = field(default_factory=list)
    tokenizations: dict[float, float] = field(default_factory=dict)
    error: str = ""
    ran: BatchCompleted = field(default_factory=BatchCompleted)
    complete: bool = False
    has_answers: bool = False
    received_at: float = 0.0

    def join(self, entry: Entry) -> None:
        """Counts an entry, and links its request if that is traced."""
        self.entries += 1
        if (
            entry.traceparent
            and len(self.links) < MAX_LINKS
            and (request := parse_traceparent(entry.traceparent)) is not None
        ):
            self.links.append(Link(request, {"messaging.message.id": entry.ref.entry_id.decode()}))

    def attributes(self) -> dict[str, AttributeValue]:
        """Returns the attributes of its span; the number of entries only if there are several."""
        attributes: dict[str, AttributeValue] = (
            {"messaging.batch.message_count": self.entries} if self.entries > 1 else {}
        )
        if self.ran.size:
            attributes |= {"redbatch.batch.inputs": self.ran.inputs, "redbatch.batch.tokens": self.ran.tokens}
            attributes |= {
                "redbatch.batch.texts": self.ran.size,
                "redbatch.batch.padded_tokens": self.ran.padded_tokens,
            }
        if self.error:
            attributes["error.type"] = self.error
        return attributes


class Spans:
    """Creates the spans of one worker.

    Args:
        tracer: creates a span.
        queue: the name of the queue.
        worker: the name of the worker.
        in_flight: the entries that it holds.
    """

    def __init__(self, tracer: Tracer, queue: str, worker: str, in_flight: InFlightEntries) -> None:
        self._tracer = tracer
        self._queue = queue
        self._in_flight = in_flight
        self._common: dict[str, AttributeValue] = {
            "messaging.system": "redis",
            "messaging.destination.name": queue,
            "messaging.consumer.group.name": GROUP,
            "messaging.client.id": worker,
        }
        self._batches: dict[int, _Batch] = {}
        self._by_entry: dict[str, _Batch] = {}

    @suppress_errors
    def record_batch(self, completed: BatchCompleted) -> None:
        """Records a BatchCompleted message, before its entries are answered."""
        batch = self._batches.setdefault(completed.batch, _Batch())
        batch.received_at = batch.received_at or time.monotonic()
        for done in completed.results:
            if self._add_answer(batch, done.key):
                batch.tokenizations[done.tokenized_at] = done.tokenize_s
        for failed in completed.failures:
            if self._add_answer(batch, failed.key):
                batch.error = batch.error or failed.code
        for key in completed.unfinished_keys:
            if (in_flight_entry := self._in_flight.get(key)) is not None:
                batch.join(in_flight_entry.entry)
        if completed.more:
            return
        del self._batches[completed.batch]
        batch.ran, batch.complete = replace(completed, results=(), unfinished_keys=(), failures=()), True
        if not batch.pending and completed.size:
            self._export(batch)

    @suppress_errors
    def record_failure(self, key: str, code: str) -> None:
        """Records that an entry fails, before it is answered. One outside a batch counts as a batch of one."""
        batch = _Batch(error=code, complete=True, received_at=time.monotonic())
        if key not in self._by_entry:
            self._add_answer(batch, key)

    @suppress_errors
    def discard_open_batches(self) -> None:
        """Forgets the batches that are not complete: the engine died, and their other messages will not come."""
        self._batches.clear()

    @suppress_errors
    def record_answers(self, keys: Iterable[str]) -> None:
        """Records that entries are answered in Redis, by this worker or by another that was first."""
        for key in keys:
            batch = self._by_entry.pop(key, None)
            if batch is not None:
                batch.pending.discard(key)
                if batch.complete and not batch.pending:
                    self._export(batch)

    def _add_answer(self, batch: _Batch, key: str) -> bool:
        """Notes that a batch answers an entry; returns False if the entry is not held any more, or has an answer."""
        in_flight_entry = self._in_flight.get(key)
        if in_flight_entry is None or in_flight_entry.answered:
            return False
        batch.join(in_flight_entry.entry)
        batch.pending.add(key)
        batch.has_answers = True
        self._by_entry[key] = batch
        return True

    def _export(self, batch: _Batch) -> None:
        """Creates the spans of a batch, if the request of any of its entries is traced."""
        if not batch.links:
            return
        now, ran = time.monotonic(), batch.ran
        run_began = ran.ended_at - ran.run_s if ran.size else batch.received_at
        tokenizations = sorted((ended - took, ended) for ended, took in batch.tokenizations.items())[:MAX_TOKENIZATIONS]
        clock = _Clock(now)
        span = self._tracer.start_span(
            f"process {self._queue}",
            _parent(batch),
            SpanKind.CONSUMER,
            self._attributes("process") | batch.attributes(),
            batch.links,
            clock.ns(min([run_began, *(began for began, _ in tokenizations)])),
        )
        stages = [("tokenize", began, ended) for began, ended in tokenizations]
        if tokenizations and ran.size:
            stages.append(("wait", min(ended for _, ended in tokenizations), run_began))
        if ran.size:
            stages.append(("run", run_began, ran.ended_at))
        parent = set_span_in_context(span, Context())
        for name, began, ended in stages:
            self._tracer.start_span(name, parent, start_time=clock.ns(began)).end(clock.ns(ended))
        if batch.has_answers:
            name, attributes, since = f"settle {self._queue}", self._attributes("settle"), clock.ns(batch.received_at)
            self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes, start_time=since).end(clock.ns(now))
        if batch.error:
            span.set_status(StatusCode.ERROR)
        span.end(clock.ns(now))

    def _attributes(self, operation: str) -> dict[str, AttributeValue]:
        return self._common | {"messaging.operation.name": operation, "messaging.operation.type": operation}


class _Clock:
    """Converts times of the monotonic clock to those of OpenTelemetry, by the clocks at one moment."""

    def __init__(self, now: float) -> None:
        self._ahead_ns = time.time_ns() - int(now * NS)

    def ns(self, moment: float) -> int:
        """Returns nanoseconds since 1970."""
        return int(moment * NS) + self._ahead_ns


def _parent(batch: _Batch) -> Context:
    """Returns the request of a single entry as parent; no parent for several entries, which are only linked."""
    none = Context()
    return set_span_in_context(NonRecordingSpan(batch.links[0].context), none) if batch.entries == 1 else none
