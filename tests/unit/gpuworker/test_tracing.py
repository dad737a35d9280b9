"""The spans that a worker makes of what its engine tells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from gpuworker.holding import Hands, key_of
from gpuworker.tracing import MOST_LINKS, MOST_READS, Spans
from redbatch.tracing import tracing_of
from redbatch.tracing.provider import bare_provider
from shared.messages import Entry, Ref

BATCH = "process minilm"


def traceparent(number: int) -> str:
    """Returns the context of a request."""
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


class Played:
    """A worker without Redis and engine: what it holds, and the spans that come of what is told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = bare_provider("worker")
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hands = Hands()
        self.spans = Spans(tracing_of(provider).tracer, "minilm", "w", self.hands)
        self.now = time.monotonic()

    def take(self, numbers: Sequence[int], *, traced: bool = True) -> list[Entry]:
        """Takes entries in hand."""
        entries = [
            Entry(Ref(0, b"%d-0" % n, 1, 1), 1, f"r{n}", 0, 10**12, "", traceparent(n) if traced else "", b"")
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
        frame = {"more": False, "size": len(done), "inputs": len(done), "tokens": 3, "padded": 4, "seconds": 0.5}
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
    played.commit(entries)
    [batch] = played.named(BATCH)
    assert (batch.status.status_code, attributes(batch)["error.type"]) == (StatusCode.ERROR, "input_failed")
    assert len(batch.links) == 2
    assert "nothing is told" not in batch.to_json()


def test_what_a_tokenizer_alone_answers_has_not_run() -> None:
    """Its span has two stages."""
    played = Played()
    entries = played.take([1])
    played.ran(played.done(entries, -1.0), size=0, seconds=0.0, ended=0.0)
    played.commit(entries)
    assert [each.name for each in played.exporter.get_finished_spans()] == ["tokenize", "commit", BATCH]


def test_a_part_of_an_entry_is_linked_to_its_batch() -> None:
    """One that goes on in another batch has nothing to commit yet."""
    played = Played()
    entries = played.take([1])
    played.ran([], size=1, paused=[key_of(entries[0])])
    assert [each.name for each in played.exporter.get_finished_spans()] == ["run", BATCH]


def test_nothing_is_told_of_what_nobody_traces() -> None:
    """Nor of what is not held any more, and nothing is kept of it."""
    played = Played()
    entries = played.take([1], traced=False)
    gone = Entry(Ref(0, b"9-0", 1, 1), 1, "r9", 0, 10**12, "", traceparent(9), b"")
    played.ran(played.done([*entries, gone]))
    played.commit([*entries, gone])
    played.ran([], size=0, paused=["0/1-0"])
    assert played.exporter.get_finished_spans() == ()
    assert played.spans._open == {}


def test_one_of_several_that_is_traced_is_linked_alone() -> None:
    """It is no parent: the batch has others."""
    played = Played()
    entries = [*played.take([1]), *played.take([2], traced=False)]
    played.ran(played.done(entries))
    played.commit(entries)
    [batch] = played.named(BATCH)
    assert (batch.parent, len(batch.links)) == (None, 1)
