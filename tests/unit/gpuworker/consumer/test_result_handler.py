"""What the results of batches become: answers with their times, and the rate of the engine."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.consumer.committer import Committer
from gpuworker.consumer.inflight import InFlightEntry
from gpuworker.consumer.result_handler import ResultHandler
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.ipc.messages import BatchCompleted, EntryFailure, EntryResult
from shared.messages import Entry, Ref, Reply, Vectors

SIZE = 3
LARGEST = 7


class FakeCommitter:
    """Commits nothing; `replies` are those that it was to commit."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def answer(self, in_flight_entry: InFlightEntry, reply: Reply) -> None:
        """Records a reply."""
        in_flight_entry.answered = True
        self.replies.append(reply)

    def fail(self, in_flight_entry: InFlightEntry, _code: str, _message: str, **_: object) -> None:
        """Fails an entry."""
        in_flight_entry.answered = True


class FakeEngine:
    """Batches of an engine, one after the other, and the measured rate."""

    def __init__(self, *, full: bool = False) -> None:
        settings = SimpleNamespace(batching=SimpleNamespace(wait_s=0.0), queue_name="minilm")
        self.worker_state = WorkerState(cast("Any", settings), "w")
        ShardState(self.worker_state, cast("Any", None), cast("Any", None))
        self.committer = FakeCommitter()
        self.result_handler = ResultHandler(self.worker_state, [cast("Committer", self.committer)])
        self.full = full
        self.num_entries = 0

    def ran(self, ended: float, seconds: float, *, entries: int, behind: bool, cost: float = 0.0) -> float:
        """Reports a batch that completes this many entries; returns the rate after it."""
        done = []
        for _ in range(entries):
            self.num_entries += 1
            ref = Ref(0, f"{self.num_entries}-0".encode(), 1, 10)
            self.worker_state.in_flight.add(Entry(ref, 1, f"r{self.num_entries}", 0, 10**12, "", "", b""), 0, ("text",))
            done.append(
                EntryResult(
                    f"0/0/{self.num_entries}-0",
                    4,
                    1,
                    (),
                    (1,),
                    tokenize_s=0.0,
                    tokenized_at=0.0,
                    started_at=ended - seconds,
                    batch_size=LARGEST,
                )
            )
        completed = BatchCompleted(
            size=SIZE,
            inputs=SIZE,
            tokens=1,
            padded_tokens=1,
            cost=cost,
            run_s=seconds,
            ended_at=ended,
            has_backlog=behind,
            is_full=self.full,
            results=tuple(done),
        )
        self.result_handler.handle(completed, bytes(4 * entries))
        return self.worker_state.tokens_per_s


def test_a_saturated_batch_gives_the_rate_of_what_it_ran() -> None:
    """Whether more waited than it took, or it was full; also if the clients of all its entries have left."""
    for full, behind in ((True, False), (False, True)):
        engine = FakeEngine(full=full)
        assert engine.ran(time.monotonic(), 0.5, entries=0, behind=behind, cost=10) == pytest.approx(20.0)
    engine = FakeEngine()
    assert engine.ran(time.monotonic(), 0.5, entries=2, behind=False, cost=10) == 0.0


def test_an_answer_has_the_time_of_its_last_batch_and_the_size_of_its_largest() -> None:
    """How long the last one took, in ms, and how many texts were in the largest."""
    engine = FakeEngine()
    engine.ran(10.0, 0.5, entries=2, behind=False)
    timings = [cast("Vectors", each).timing for each in engine.committer.replies]
    assert [(each.inference_ms, each.batch_size) for each in timings] == [(500.0, LARGEST)] * 2


def test_the_time_of_the_device_is_counted_for_tenants() -> None:
    """Also that of entries that fail, or are answered already; entries that are gone have no tenant."""
    engine = FakeEngine()
    state, tenants = engine.worker_state, ("web", "web", "shop", "")
    held = [
        state.in_flight.add(
            Entry(Ref(0, f"{number}-0".encode(), 1, 10), 1, f"r{number}", 0, 10**12, "", "", b"", tenant=tenant), 0, ()
        )
        for number, tenant in enumerate(tenants)
    ]
    state.in_flight.mark_answered(held[1])
    results = [EntryResult(each.key, 4, 1, (), (1,), 0.0, 0.0, 0.0, device_s=0.25) for each in held[:3]]
    gone = EntryResult("0/0/9-0", 4, 1, (), (1,), 0.0, 0.0, 0.0, device_s=0.5)
    failure = EntryFailure(held[3].key, "input_failed", "It failed.", device_s=0.125)
    engine.result_handler.handle(BatchCompleted(results=(*results, gone), failures=(failure,)), bytes(16))
    assert {key: usage.device_ms for key, usage in state.usage.rows().items()} == {
        ("web", "minilm", "embed"): 500.0,
        ("shop", "minilm", "embed"): 250.0,
        ("", "minilm", "embed"): 125.0,
    }
