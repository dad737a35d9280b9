"""The measured rate of an engine: under load, by the time of its batches and of the gaps between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.consumer.committer import Committer
from gpuworker.consumer.inflight import InFlightEntries, InFlightEntry
from gpuworker.consumer.redis_clock import RedisClock
from gpuworker.consumer.result_handler import ResultHandler
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.ipc.messages import BatchCompleted, EntryResult
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


class FakeEngine:
    """Batches of an engine, one after the other, and the measured rate."""

    def __init__(self, *, wait_s: float | None = 0.0, full: bool = False) -> None:
        settings = SimpleNamespace(batching=SimpleNamespace(wait_s=wait_s))
        self.worker_state = WorkerState(
            cast("Any", settings), "w", cast("Any", None), cast("Any", None), RedisClock(), InFlightEntries()
        )
        self.committer = FakeCommitter()
        self.result_handler = ResultHandler(self.worker_state, cast("Committer", self.committer))
        self.full = full
        self.num_entries = 0

    def ran(
        self, ended: float, seconds: float, *, entries: int, behind: bool, cost: int = 10, gap: float = 0.0
    ) -> float:
        """Reports a batch that completes this many entries; returns the rate after it."""
        done = []
        for _ in range(entries):
            self.num_entries += 1
            ref = Ref(0, f"{self.num_entries}-0".encode(), 1, cost)
            self.worker_state.in_flight.add(Entry(ref, 1, f"r{self.num_entries}", 0, 10**12, "", "", b""), ("text",))
            done.append(
                EntryResult(
                    f"0/{self.num_entries}-0",
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
            run_s=seconds,
            gap_s=gap,
            ended_at=ended,
            has_backlog=behind,
            is_full=self.full,
            results=tuple(done),
        )
        self.result_handler.handle(completed, bytes(4 * entries))
        return self.worker_state.tokens_per_s


def test_light_load_gives_no_rate() -> None:
    """An engine that does all that is requested could do more."""
    engine = FakeEngine()
    assert engine.ran(10.0, 1.0, entries=1, behind=False) == 0.0


def test_a_full_batch_gives_a_rate() -> None:
    """Even with nothing waiting, as if a worker holds only a batch that runs and the next one."""
    engine = FakeEngine(wait_s=None, full=True)
    for number in range(100):
        rate = engine.ran(10.0 + number, 0.5, entries=4, behind=False, gap=0.5)
    assert rate == pytest.approx(80.0, rel=0.01)


def test_batches_side_by_side_count_for_the_time_that_they_take_together() -> None:
    """Two runners that end together have done twice as much."""
    engine = FakeEngine()
    engine.ran(10.0, 1.0, entries=5, behind=True)
    assert engine.ran(10.0, 1.0, entries=5, behind=True) == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize(("wait_s", "expected"), [(0.0, 10.0), (0.02, 20.0), (None, 20.0)])
def test_the_gap_between_batches_counts_without_a_wait(wait_s: float | None, expected: float) -> None:
    """Batches of ten tokens and half a second, half a second apart, while more waits than runs."""
    engine = FakeEngine(wait_s=wait_s)
    for number in range(100):
        rate = engine.ran(10.0 + number, 0.5, entries=1, behind=True, gap=0.5)
    assert rate == pytest.approx(expected, rel=0.01)


def test_idle_time_does_not_count() -> None:
    """Every other batch leaves nothing waiting: before the next one the engine had no more to do."""
    engine = FakeEngine()
    for number in range(100):
        rate = engine.ran(10.0 + number, 0.5, entries=1, behind=bool(number % 2), gap=0.5)
    assert rate == pytest.approx(20.0, rel=0.01)


def test_a_gap_in_which_another_runner_was_busy_does_not_count_again() -> None:
    """A runner that was idle for 3 s ends half a second after the other's batch of one second."""
    engine = FakeEngine()
    engine.ran(10.0, 1.0, entries=1, behind=True)
    rate = engine.ran(10.5, 0.5, entries=1, behind=True, gap=3.0)
    assert rate == pytest.approx((0.9 * 10 + 10) / (0.9 * 1.0 + 0.5))


def test_an_entry_counts_with_its_last_batch_even_if_nothing_waits_then() -> None:
    """Three batches of one second for one entry of 30 tokens: ten a second."""
    engine = FakeEngine()
    engine.ran(11.0, 1.0, entries=0, behind=True)
    engine.ran(12.0, 1.0, entries=0, behind=True)
    rate = engine.ran(13.0, 1.0, entries=1, behind=False, cost=30)
    assert rate == pytest.approx(30 / (1 + 0.9 + 0.81))
    assert engine.ran(14.0, 1.0, entries=1, behind=False) == rate
    assert engine.ran(15.0, 1.0, entries=0, behind=True) == rate, "no entry is complete yet"


def test_an_answer_has_the_time_of_its_last_batch_and_the_size_of_its_largest() -> None:
    """How long the last one took, in ms, and how many texts were in the largest."""
    engine = FakeEngine()
    engine.ran(10.0, 0.5, entries=2, behind=False)
    timings = [cast("Vectors", each).timing for each in engine.committer.replies]
    assert [(each.inference_ms, each.batch_size) for each in timings] == [(500.0, LARGEST)] * 2
