"""The spans of a worker: one for each batch, with those of its stages below it. Only imported when requests are traced.

All of them are made when the last answer of a batch is in Redis, of times that the engine has told: it is another
process, and knows nothing of traces.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, StatusCode, Tracer, set_span_in_context

from gpuworker.ipc.frames import Header
from gpuworker.consumer.inflight import Hands, key_of
from shared.process.tracing.harmless import harmless
from shared.process.tracing.traceparent import context_of
from shared.keys import GROUP
from shared.messages import Entry

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

MOST_LINKS = 128
"""Of a batch: OpenTelemetry keeps no more of a span."""

MOST_READS = 32
"""Of a batch: so many calls of the tokenizer have a span each."""

NS = 1_000_000_000
MEASURES = ("size", "inputs", "tokens", "padded", "seconds", "ended")


@dataclass(slots=True)
class _Batch:
    """A batch as far as it is told: by one frame, or by several.

    `waits` are the keys of entries whose answers are on their way into Redis, and `reads` when those calls of the
    tokenizer ended that read its inputs, with what they took. It is `whole` when there are no more frames to come, and
    `ran` as the last of them says; `commits` says that it has any answers. The first frame was `heard` then.
    """

    waits: set[str] = field(default_factory=set)
    entries: int = 0
    links: list[Link] = field(default_factory=list)
    reads: dict[float, float] = field(default_factory=dict)
    error: str = ""
    ran: Header = field(default_factory=lambda: {"size": 0})
    whole: bool = False
    commits: bool = False
    heard: float = 0.0

    def join(self, entry: Entry) -> None:
        """Counts an entry in, and names its request if that is traced."""
        self.entries += 1
        if entry.traceparent and len(self.links) < MOST_LINKS and (told := context_of(entry.traceparent)) is not None:
            self.links.append(Link(told, {"messaging.message.id": entry.ref.entry_id.decode()}))

    def attributes(self) -> dict[str, AttributeValue]:
        """Returns what is said of it: of a single entry not how many there are."""
        told: dict[str, AttributeValue] = {"messaging.batch.message_count": self.entries} if self.entries > 1 else {}
        if self.ran["size"]:
            told |= {f"redbatch.batch.{name}": self.ran[name] for name in ("inputs", "tokens")}
            told |= {"redbatch.batch.texts": self.ran["size"], "redbatch.batch.padded_tokens": self.ran["padded"]}
        if self.error:
            told["error.type"] = self.error
        return told


class Spans:
    """Makes the spans of one worker.

    Args:
        tracer: makes a span.
        queue: the name of the queue.
        worker: that of the worker.
        hands: what it holds.
    """

    def __init__(self, tracer: Tracer, queue: str, worker: str, hands: Hands) -> None:
        self._tracer = tracer
        self._queue = queue
        self._hands = hands
        self._common: dict[str, AttributeValue] = {
            "messaging.system": "redis",
            "messaging.destination.name": queue,
            "messaging.consumer.group.name": GROUP,
            "messaging.client.id": worker,
        }
        self._batches: dict[int, _Batch] = {}
        self._open: dict[str, _Batch] = {}

    @harmless
    def ran(self, header: Header) -> None:
        """Takes in a `ran` frame, before what is in it is answered."""
        batch = self._batches.setdefault(header["batch"], _Batch())
        batch.heard = batch.heard or time.monotonic()
        for done in header["done"]:
            if self._answers(batch, done["key"]):
                batch.reads[done["read_at"]] = done["read_s"]
        for failed in header["failed"]:
            if self._answers(batch, failed["key"]):
                batch.error = batch.error or failed["code"]
        for key in header["paused"]:
            if (holding := self._hands.get(key)) is not None:
                batch.join(holding.entry)
        if header["more"]:
            return
        del self._batches[header["batch"]]
        batch.ran, batch.whole = {name: header[name] for name in MEASURES}, True
        if not batch.waits and header["size"]:
            self._tell(batch)

    @harmless
    def failed(self, key: str, code: str) -> None:
        """Takes in that an entry fails, before that is answered. One that is of no batch is told as one of its own."""
        batch = _Batch(error=code, whole=True, heard=time.monotonic())
        if key not in self._open:
            self._answers(batch, key)

    @harmless
    def interrupted(self) -> None:
        """The engine died: what it had begun to tell has no end."""
        self._batches.clear()

    @harmless
    def answered(self, entries: Iterable[Entry]) -> None:
        """Takes in that Redis has the answers to some entries, or knows that others came first."""
        for entry in entries:
            key = key_of(entry)
            batch = self._open.pop(key, None)
            if batch is not None:
                batch.waits.discard(key)
                if batch.whole and not batch.waits:
                    self._tell(batch)

    def _answers(self, batch: _Batch, key: str) -> bool:
        """Notes that an entry is answered by a batch; returns whether it is still to be answered at all."""
        holding = self._hands.get(key)
        if holding is None or holding.answered:
            return False
        batch.join(holding.entry)
        batch.waits.add(key)
        batch.commits = True
        self._open[key] = batch
        return True

    def _tell(self, batch: _Batch) -> None:
        """Makes the spans of a batch, if anybody in it is traced."""
        if not batch.links:
            return
        now, ran = time.monotonic(), batch.ran
        runs = ran["ended"] - ran["seconds"] if ran["size"] else batch.heard
        reads = sorted((ended - took, ended) for ended, took in batch.reads.items())[:MOST_READS]
        clock = _Clock(now)
        span = self._tracer.start_span(
            f"process {self._queue}",
            _parent(batch),
            SpanKind.CONSUMER,
            self._attributes("process") | batch.attributes(),
            batch.links,
            clock.ns(min([runs, *(began for began, _ in reads)])),
        )
        stages = [("tokenize", began, ended) for began, ended in reads]
        if reads and ran["size"]:
            stages.append(("wait", min(ended for _, ended in reads), runs))
        if ran["size"]:
            stages.append(("run", runs, ran["ended"]))
        below = set_span_in_context(span, Context())
        for name, began, ended in stages:
            self._tracer.start_span(name, below, start_time=clock.ns(began)).end(clock.ns(ended))
        if batch.commits:
            name, told, since = f"settle {self._queue}", self._attributes("settle"), clock.ns(batch.heard)
            self._tracer.start_span(name, below, SpanKind.CLIENT, told, start_time=since).end(clock.ns(now))
        if batch.error:
            span.set_status(StatusCode.ERROR)
        span.end(clock.ns(now))

    def _attributes(self, operation: str) -> dict[str, AttributeValue]:
        return self._common | {"messaging.operation.name": operation, "messaging.operation.type": operation}


class _Clock:
    """Tells times of the monotonic clock as OpenTelemetry wants them, as of a moment."""

    def __init__(self, now: float) -> None:
        self._ahead_ns = time.time_ns() - int(now * NS)

    def ns(self, moment: float) -> int:
        """Returns nanoseconds since 1970."""
        return int(moment * NS) + self._ahead_ns


def _parent(batch: _Batch) -> Context:
    """Returns the request of a single entry; nothing for more of them, which are linked alone."""
    none = Context()
    return set_span_in_context(NonRecordingSpan(batch.links[0].context), none) if batch.entries == 1 else none
