"""The spans that a worker creates from its engine's reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from structlog.testing import capture_logs

from gpuworker.consumer.inflight import InFlightEntries, key_of
from gpuworker.ipc.messages import BatchCompleted, EntryFailure, EntryResult
from gpuworker.settings import WorkerSettings
from gpuworker.tracing import MAX_LINKS, MAX_TOKENIZATIONS, Spans
from gpuworker.worker import Worker
from shared.messages import Entry, Ref
from shared.process.tracing import create_tracing
from shared.process.tracing.tracer_provider import create_bare_provider

BATCH = "process minilm"
OPERATION = ("messaging.operation.name", "messaging.operation.type")


def traceparent(number: int, flags: str = "01") -> str:
    """Returns the context of a request."""
    return f"00-{number + 1:032x}-{number + 1:016x}-{flags}"


class FakeWorker:
    """A worker without Redis and engine: the entries that it holds, and the spans that follow from reports."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = create_bare_provider("worker")
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.in_flight = InFlightEntries()
        self.spans = Spans(create_tracing(provider).tracer, "minilm", "w", self.in_flight)
        self.now = time.monotonic()

    def take(self, numbers: Sequence[int], flags: str | None = "01") -> list[Entry]:
        """Adds entries to those in flight, of requests that are traced if they have flags that say this."""
        entries = [
            Entry(Ref(0, b"%d-0" % n, 1, 1), 1, f"r{n}", 0, 10**12, "", traceparent(n, flags) if flags else "", b"")
            for n in numbers
        ]
        for entry in entries:
            self.in_flight.add(entry, 0, ("text",))
        return entries

    def done(self, entries: Sequence[Entry], read_at: float = 1.0) -> list[EntryResult]:
        """Returns an engine's report of completed entries; their tokenizer took 0.25 s, up to `read_at`."""
        return [
            EntryResult(key_of(each, 0), 4, 1, (), (1,), 0.25, self.now + read_at, self.now + 1.5) for each in entries
        ]

    def ran(self, done: list[EntryResult], **fields: Any) -> None:  # noqa: ANN401 - any field of the message
        """Reports a batch that ran for 0.5 s, up to 2 s from the start."""
        completed = BatchCompleted(
            size=len(done),
            inputs=len(done) + 1,
            tokens=3,
            padded_tokens=4,
            run_s=0.5,
            ended_at=self.now + 2,
            results=tuple(done),
        )
        self.spans.record_batch(replace(completed, **fields))

    def commit(self, entries: Sequence[Entry]) -> None:
        """Records that Redis has the answers."""
        keys = [key_of(each, 0) for each in entries]
        self.spans.record_answers(keys)
        self.in_flight.remove(keys)

    def named(self, name: str) -> list[ReadableSpan]:
        """Returns the spans of this name."""
        return [each for each in self.exporter.get_finished_spans() if each.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Returns the attributes of a span."""
    return dict(span.attributes or {})


def lasted(span: ReadableSpan) -> float:
    """Returns how long a span took, in s."""
    return round(((span.end_time or 0) - (span.start_time or 0)) / 1e9, 3)


def test_a_batch_has_its_attributes() -> None:
    """The span of a batch, its links and its settle span have them; the stages of the engine have none."""
    worker = FakeWorker()
    entries = worker.take([1, 2])
    worker.ran(worker.done(entries))
    worker.commit(entries)
    [batch], [settle] = worker.named(BATCH), worker.named("settle minilm")
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
    stages = [worker.named(name)[0] for name in ("tokenize", "wait", "run")]
    assert [(attributes(each), each.kind) for each in stages] == [({}, SpanKind.INTERNAL)] * 3


def test_times_are_those_of_the_engine() -> None:
    """Each stage takes the reported time, and begins where the one before has ended."""
    worker = FakeWorker()
    entries = worker.take([1])
    worker.ran(worker.done(entries))
    worker.commit(entries)
    stages = [worker.named(name)[0] for name in ("tokenize", "wait", "run")]
    assert [lasted(each) for each in stages] == [0.25, 0.5, 0.5]
    assert [a.end_time for a in stages[:2]] == [b.start_time for b in stages[1:]]


def test_a_batch_is_exported_when_its_last_answer_is_in_redis() -> None:
    """Not before, and only once."""
    worker = FakeWorker()
    entries = worker.take([1, 2])
    worker.ran(worker.done(entries))
    worker.commit(entries[:1])
    assert worker.named(BATCH) == []
    worker.commit(entries[1:])
    worker.commit(entries)
    assert len(worker.named(BATCH)) == 1


def test_several_messages_of_a_batch_make_one_span() -> None:
    """Even if the answers of its first message are in Redis before the last arrives."""
    worker = FakeWorker()
    entries = worker.take([1, 2, 3])
    worker.ran(worker.done(entries[:1]), more=True)
    worker.commit(entries[:1])
    worker.ran(worker.done(entries[1:]))
    worker.commit(entries[1:])
    [batch] = worker.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (3, 3)


def test_batches_reported_side_by_side_are_not_mixed() -> None:
    """Another batch may be reported between the messages of one."""
    worker = FakeWorker()
    long, short = worker.take([1, 2]), worker.take([3])
    worker.ran(worker.done(long[:1]), more=True, batch=7)
    worker.ran(worker.done(short), batch=8)
    worker.ran(worker.done(long[1:]), batch=7)
    worker.commit([*long, *short])
    assert [len(each.links) for each in worker.named(BATCH)] == [2, 1]


def test_a_batch_of_an_engine_that_dies_is_forgotten() -> None:
    """The next engine numbers its batches from the start again."""
    worker = FakeWorker()
    before, after = worker.take([1]), worker.take([2])
    worker.ran(worker.done(before), more=True)
    worker.spans.discard_open_batches()
    worker.ran(worker.done(after))
    worker.commit([*before, *after])
    [batch] = worker.named(BATCH)
    assert [each.context.trace_id for each in batch.links] == [3]
    assert (worker.spans._batches, worker.spans._by_entry) == ({}, {})


async def test_a_worker_discards_open_batches_when_its_engine_dies() -> None:
    """Otherwise the first batch of the next engine would have the links of the last one."""
    settings = WorkerSettings(model="null", device="cpu")
    worker = Worker(settings, "w", [], asyncio.Event(), create_tracing(create_bare_provider("worker")))
    assert worker._worker_state.spans is not None
    worker._worker_state.spans.record_batch(BatchCompleted(more=True))
    worker._on_death(1)
    assert worker._worker_state.spans._batches == {}


def test_links_and_tokenizations_are_bounded() -> None:
    """The number of entries is reported even if it exceeds the links that a span keeps."""
    worker = FakeWorker()
    entries = worker.take(range(MAX_LINKS + 10))
    worker.ran([fields for i, each in enumerate(entries) for fields in worker.done([each], i / 1000)])
    worker.commit(entries)
    [batch] = worker.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (MAX_LINKS, MAX_LINKS + 10)
    assert len(worker.named("tokenize")) == MAX_TOKENIZATIONS


def test_one_tokenizer_call_is_one_stage() -> None:
    """A call of the tokenizer has one span, however many entries it reads."""
    worker = FakeWorker()
    entries = worker.take([1, 2, 3])
    worker.ran([*worker.done(entries[:2], 0.5), *worker.done(entries[2:], 1.0)])
    worker.commit(entries)
    assert [lasted(each) for each in worker.named("tokenize")] == [0.25, 0.25]
    assert [lasted(each) for each in worker.named("wait")] == [1.0]  # from the first that was ready


def test_an_entry_that_fails_marks_its_batch() -> None:
    """The batch has its error code; the other entries of the batch are linked too."""
    worker = FakeWorker()
    entries = worker.take([1, 2])
    failed = [EntryFailure(key_of(entries[1], 0), "input_failed", "a secret message")]
    worker.ran(worker.done(entries[:1]), failures=tuple(failed))
    worker.spans.record_failure(key_of(entries[1], 0), "input_failed")  # as the committer reports each
    worker.commit(entries)
    [batch] = worker.named(BATCH)
    assert (batch.status.status_code, attributes(batch)["error.type"]) == (StatusCode.ERROR, "input_failed")
    assert len(batch.links) == 2
    assert "a secret message" not in batch.to_json()


def test_an_entry_that_fails_outside_a_batch_has_a_span() -> None:
    """Such as one that was claimed too late: in its request's trace, when Redis has the answer."""
    worker = FakeWorker()
    [entry] = worker.take([1])
    worker.spans.record_failure(key_of(entry, 0), "deadline_exceeded")
    assert worker.named(BATCH) == []
    worker.commit([entry])
    [settle], [span] = worker.named("settle minilm"), worker.named(BATCH)
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "deadline_exceeded")
    assert (span.parent and span.parent.span_id, settle.parent) == (2, span.get_span_context())
    assert len(span.links) == 1


def test_an_entry_that_has_its_answer_is_in_no_other_batch() -> None:
    """Such as one that failed as late, and ran all the same."""
    worker = FakeWorker()
    late, other = worker.take([1, 2])
    in_flight_entry = worker.in_flight.get(key_of(late, 0))
    assert in_flight_entry is not None
    in_flight_entry.answered = True
    worker.ran(worker.done([late, other]))
    worker.commit([late, other])
    [batch] = worker.named(BATCH)
    assert [each.context.trace_id for each in batch.links] == [3]


def test_failures_of_tracing_do_no_harm() -> None:
    """They are logged once, and not for each batch."""
    worker = FakeWorker()
    worker.spans._tracer = cast("Tracer", None)
    with capture_logs() as logs:
        for number in range(3):
            entries = worker.take([number])
            worker.ran(worker.done(entries))
            worker.commit(entries)
    assert len(logs) <= 1  # none, if another test has caused the first
    assert worker.spans._by_entry == {}


def test_an_answer_of_the_tokenizer_has_no_run() -> None:
    """Its span has two stages."""
    worker = FakeWorker()
    entries = worker.take([1])
    worker.ran(worker.done(entries, -1.0), size=0, run_s=0.0, ended_at=0.0)
    worker.commit(entries)
    assert [each.name for each in worker.exporter.get_finished_spans()] == ["tokenize", "settle minilm", BATCH]


def test_a_part_of_an_entry_is_linked_to_its_batch() -> None:
    """An entry that continues in another batch has nothing to commit yet."""
    worker = FakeWorker()
    entries = worker.take([1])
    worker.ran([], size=1, unfinished_keys=(key_of(entries[0], 0),))
    assert [each.name for each in worker.exporter.get_finished_spans()] == ["run", BATCH]


def test_untraced_requests_have_no_spans() -> None:
    """Nor have entries that are no longer held, and no state is kept for either."""
    worker = FakeWorker()
    entries = worker.take([1], None)
    gone = Entry(Ref(0, b"9-0", 1, 1), 1, "r9", 0, 10**12, "", traceparent(9), b"")
    worker.ran(worker.done([*entries, gone]))
    worker.commit([*entries, gone])
    worker.ran([], size=0, unfinished_keys=("0/0/1-0",))
    assert worker.exporter.get_finished_spans() == ()
    assert worker.spans._by_entry == {}


def test_unsampled_requests_take_no_links() -> None:
    """Sampled requests of the batch are linked, however many unsampled ones there are; without any there is no span."""
    worker = FakeWorker()
    entries = [*worker.take(range(MAX_LINKS), "00"), *worker.take(range(MAX_LINKS, MAX_LINKS + 3))]
    worker.ran(worker.done(entries))
    worker.commit(entries)
    worker.ran(worker.done(again := worker.take([1], "00")))
    worker.commit(again)
    [batch] = worker.named(BATCH)
    assert (len(batch.links), attributes(batch)["messaging.batch.message_count"]) == (3, MAX_LINKS + 3)


def test_one_traced_request_of_several_is_linked() -> None:
    """It is not the parent: the batch has other entries."""
    worker = FakeWorker()
    entries = [*worker.take([1]), *worker.take([2], None)]
    worker.ran(worker.done(entries))
    worker.commit(entries)
    [batch] = worker.named(BATCH)
    assert (batch.parent, len(batch.links)) == (None, 1)
