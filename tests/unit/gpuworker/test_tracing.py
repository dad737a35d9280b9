"""The spans that a worker makes of what its engine tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from structlog.testing import capture_logs

from gpuworker.consumer.inflight import Hands, key_of
from gpuworker.settings import WorkerSettings
from gpuworker.tracing import MOST_LINKS, MOST_READS, Spans
from gpuworker.worker import Worker
from shared.process.tracing import tracing_of
from shared.process.tracing.provider import bare_provider
from shared.messages import Entry, Ref

BATCH = "process minilm"
OPERATION = ("messaging.operation.name", "messaging.operation.type")


def traceparent(number: int, flags: str = "01") -> str:
    """Returns the context of a request."""
    return f"00-{number + 1:032x}-{number + 1:016x}-{flags}"


class Played:
    """A worker without Redis and engine: what it holds, and the spans that come of what is told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = bare_provider("worker")
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hands = Hands()
        self.spans = Spans(tracing_of(provider).tracer, "minilm", "w", self.hands)
        self.now = time.monotonic()

    def take(self, numbers: Sequence[int], flags: str | None = "01") -> list[Entry]:
        """Takes entries in hand, of requests that are traced if they have flags that say so."""
        entries = [
            Entry(Ref(0, b"%d-0" % n, 1, 1), 1, f"r{n}", 0, 10**12, "", traceparent(n, flags) if flags else "", b"")
            for n in numbers
        ]
        for entry in entries:
            self.hands.take(entry, ("text",))
        return entries

    def done(self, entries: Sequence[Entry], read_at: float = 1.0) -> list[dict[str, Any]]:
        """Returns what an engine says of entries that are done; their tokenizer took 0.25 s, up to `read_at`."""
        return [{"key": key_of(each), "read_at": self.now + read_at, "read_s": 0.25} for each in entries]

    def ran(self, done: list[dict[str, Any]], **told: Any) -> None:  # noqa: ANN401 - what a frame may hold
        """Has the engine tell of a batch that ran for 0.5 s, up to 2 s from the start."""
        frame = {
            "batch": 0,
            "more": False,
            "size": len(done),
            "inputs": len(done) + 1,
            "tokens": 3,
            "padded": 4,
            "seconds": 0.5,
        }
        self.spans.ran(frame | {"ended": self.now + 2, "done": done, "paused": [], "failed": []} | told)

    def commit(self, entries: Sequence[Entry]) -> None:
        """Has Redis take the answers."""
        self.spans.answered(entries)
        self.hands.release(map(key_of, entries))

    def named(self, name: str) -> list[ReadableSpan]:
        """Returns the spans of that name."""
        return [each for each in self.exporter.get_finished_spans() if each.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Returns what is said of a span."""
    return dict(span.attributes or {})


def lasted(span: ReadableSpan) -> float:
    """Returns how long a span took, in s."""
    return round(((span.end_time or 0) - (span.start_time or 0)) / 1e9, 3)


def test_what_is_said_of_a_batch() -> None:
    """All of it, and of its links; the stages of the engine say when they were alone."""
    played = Played()
    entries = played.take([1, 2])
    played.ran(played.done(entries))
    played.commit(entries)
    [batch], [settle] = played.named(BATCH), played.named("settle minilm")
    common = {
        "messaging.client.id": "w",
        "messaging.consumer.group.name": "workers",
        "messaging.destination.name": "minilm",
        "messaging.system": "redis",
    }
    assert attributes(batch) == {
        **common,
        "messaging.batch.message_count": 2,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "redbatch.batch.inputs": 3,
        "redbatch.batch.padded_tokens": 4,
        "redbatch.batch.texts": 2,
        "redbatch.batch.tokens": 3,
    }
    assert [dict(each.attributes or {}) for each in batch.links] == [{"messaging.message.id": f"{n}-0"} for n in (1, 2)]
    assert attributes(settle) == {**common, **dict.fromkeys(OPERATION, "settle")}
    assert (batch.kind, settle.kind) == (SpanKind.CONSUMER, SpanKind.CLIENT)
    stages = [played.named(name)[0] for name in ("tokenize", "wait", "run")]
    assert [(attributes(each), each.kind) for each in stages] == [({}, SpanKind.INTERNAL)] * 3


def test_times_are_those_of_the_engine() -> None:
    """Each stage takes as long as was told, and begins where the one before has ended."""
    played = Played()
    entries = played.take([1])
    played.ran(played.done(entries))
    played.commit(entries)
    stages = [played.named(name)[0] for name in ("tokenize", "wait", "run")]
    assert [lasted(each) for each in stages] == [0.25, 0.5, 0.5]
    assert [a.end_time for a in stages[:2]] == [b.start_time for b in stages[1:]]


def test_a_batch_is_told_when_its_last_answer_is_in_redis() -> None:
    """Not before; and once."""
    played = Played()
    entries = played.take([1, 2])
    played.ran(played.done(entries))
    played.commit(entries[:1])
    assert played.named(BATCH) == []
    played.commit(entries[1:])
    played.commit(entries)
    assert len(played.named(BATCH)) == 1


def test_a_batch_of_several_frames_is_one() -> None:
    """Also where the answers of its first frame are in Redis before the last comes."""
    played = Played()
    entries = played.take([1, 2, 3])
    played.ran(played.done(entries[:1]), more=True)
    played.commit(entries[:1])
    played.ran(played.done(entries[1:]))
    played.commit(entries[1:])
    [batch] = played.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (3, 3)


def test_batches_that_are_told_side_by_side_are_not_mixed() -> None:
    """Another may come between the frames of one."""
    played = Played()
    long, short = played.take([1, 2]), played.take([3])
    played.ran(played.done(long[:1]), more=True, batch=7)
    played.ran(played.done(short), batch=8)
    played.ran(played.done(long[1:]), batch=7)
    played.commit([*long, *short])
    assert [len(each.links) for each in played.named(BATCH)] == [2, 1]


def test_a_batch_of_an_engine_that_dies_is_forgotten() -> None:
    """The next engine counts its batches anew."""
    played = Played()
    before, after = played.take([1]), played.take([2])
    played.ran(played.done(before), more=True)
    played.spans.interrupted()
    played.ran(played.done(after))
    played.commit([*before, *after])
    [batch] = played.named(BATCH)
    assert [each.context.trace_id for each in batch.links] == [3]
    assert (played.spans._batches, played.spans._open) == ({}, {})


async def test_a_worker_says_when_its_engine_dies() -> None:
    """Or the next one's first batch would have the links of the last."""
    settings = WorkerSettings(model="null", device="cpu")
    worker = Worker(settings, "w", [], asyncio.Event(), tracing_of(bare_provider("worker")))
    assert worker._context.spans is not None
    worker._context.spans.ran({"batch": 0, "more": True, "done": [], "paused": [], "failed": []})
    worker._on_death(1)
    assert worker._context.spans._batches == {}


def test_links_and_reads_are_bounded() -> None:
    """Of more requests than a span keeps links of, the number is told."""
    played = Played()
    entries = played.take(range(MOST_LINKS + 10))
    played.ran([told for i, each in enumerate(entries) for told in played.done([each], i / 1000)])
    played.commit(entries)
    [batch] = played.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (MOST_LINKS, MOST_LINKS + 10)
    assert len(played.named("tokenize")) == MOST_READS


def test_what_was_read_at_once_is_one_stage() -> None:
    """A call of the tokenizer has one span, however many entries it reads."""
    played = Played()
    entries = played.take([1, 2, 3])
    played.ran([*played.done(entries[:2], 0.5), *played.done(entries[2:], 1.0)])
    played.commit(entries)
    assert [lasted(each) for each in played.named("tokenize")] == [0.25, 0.25]
    assert [lasted(each) for each in played.named("wait")] == [1.0]  # of the first that was ready


def test_an_entry_that_fails_marks_its_batch() -> None:
    """By its code; the others of the batch are linked too."""
    played = Played()
    entries = played.take([1, 2])
    failed = [{"key": key_of(entries[1]), "code": "input_failed", "message": "of which nothing is told"}]
    played.ran(played.done(entries[:1]), failed=failed)
    played.spans.failed(key_of(entries[1]), "input_failed")  # as the committer says of each
    played.commit(entries)
    [batch] = played.named(BATCH)
    assert (batch.status.status_code, attributes(batch)["error.type"]) == (StatusCode.ERROR, "input_failed")
    assert len(batch.links) == 2
    assert "nothing is told" not in batch.to_json()


def test_an_entry_that_fails_outside_a_batch_is_told_alone() -> None:
    """As one that was claimed too late, or has ended engines: in its request's trace, when Redis has the answer."""
    played = Played()
    [entry] = played.take([1])
    played.spans.failed(key_of(entry), "deadline_exceeded")
    assert played.named(BATCH) == []
    played.commit([entry])
    [settle], [span] = played.named("settle minilm"), played.named(BATCH)
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "deadline_exceeded")
    assert (span.parent and span.parent.span_id, settle.parent) == (2, span.get_span_context())
    assert len(span.links) == 1


def test_an_entry_that_has_its_answer_is_in_no_other_batch() -> None:
    """As one that failed as late, and ran all the same."""
    played = Played()
    late, other = played.take([1, 2])
    held = played.hands.get(key_of(late))
    assert held is not None
    held.answered = True
    played.ran(played.done([late, other]))
    played.commit([late, other])
    [batch] = played.named(BATCH)
    assert [each.context.trace_id for each in batch.links] == [3]


def test_spans_that_cannot_be_made_harm_nobody() -> None:
    """That is told once, and not of each batch."""
    played = Played()
    played.spans._tracer = cast("Tracer", None)
    with capture_logs() as logs:
        for number in range(3):
            entries = played.take([number])
            played.ran(played.done(entries))
            played.commit(entries)
    assert len(logs) <= 1  # none, where another test has seen the first
    assert played.spans._open == {}


def test_what_a_tokenizer_alone_answers_has_not_run() -> None:
    """Its span has two stages."""
    played = Played()
    entries = played.take([1])
    played.ran(played.done(entries, -1.0), size=0, seconds=0.0, ended=0.0)
    played.commit(entries)
    assert [each.name for each in played.exporter.get_finished_spans()] == ["tokenize", "settle minilm", BATCH]


def test_a_part_of_an_entry_is_linked_to_its_batch() -> None:
    """One that goes on in another batch has nothing to commit yet."""
    played = Played()
    entries = played.take([1])
    played.ran([], size=1, paused=[key_of(entries[0])])
    assert [each.name for each in played.exporter.get_finished_spans()] == ["run", BATCH]


def test_nothing_is_told_of_what_nobody_traces() -> None:
    """Nor of what is not held any more, and nothing is kept of it."""
    played = Played()
    entries = played.take([1], None)
    gone = Entry(Ref(0, b"9-0", 1, 1), 1, "r9", 0, 10**12, "", traceparent(9), b"")
    played.ran(played.done([*entries, gone]))
    played.commit([*entries, gone])
    played.ran([], size=0, paused=["0/1-0"])
    assert played.exporter.get_finished_spans() == ()
    assert played.spans._open == {}


def test_what_is_not_sampled_takes_no_room() -> None:
    """Others of its batch are linked, however many there are; alone it is not told."""
    played = Played()
    entries = [*played.take(range(MOST_LINKS), "00"), *played.take(range(MOST_LINKS, MOST_LINKS + 3))]
    played.ran(played.done(entries))
    played.commit(entries)
    played.ran(played.done(again := played.take([1], "00")))
    played.commit(again)
    [batch] = played.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (3, MOST_LINKS + 3)


def test_one_of_several_that_is_traced_is_linked_alone() -> None:
    """It is no parent: the batch has others."""
    played = Played()
    entries = [*played.take([1]), *played.take([2], None)]
    played.ran(played.done(entries))
    played.commit(entries)
    [batch] = played.named(BATCH)
    assert (batch.parent, len(batch.links)) == (None, 1)
