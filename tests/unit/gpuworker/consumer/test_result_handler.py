"""What an engine is measured to do: under load, for the time that its batches and the way between them took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.consumer.redis_clock import RedisClock
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.worker_state import Context
from gpuworker.consumer.inflight import Hands, Holding
from gpuworker.consumer.result_handler import Results
from shared.messages import Entry, Ref, Reply, Vectors

SIZE = 3


class Nobody:
    """Commits nothing. `replies` are what it was to commit."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def answer(self, holding: Holding, reply: Reply) -> None:
        """Notes that there is an answer."""
        holding.answered = True
        self.replies.append(reply)


class Told:
    """Frames of an engine, one after the other, and the rate that comes of them."""

    def __init__(self, *, wait_ms: float | str = 0, full: bool = False) -> None:
        settings = SimpleNamespace(max_batch_wait_ms=wait_ms)
        self.context = Context(cast("Any", settings), "w", cast("Any", None), cast("Any", None), RedisClock(), Hands())
        self.committer = Nobody()
        self.results = Results(self.context, cast("Committer", self.committer))
        self.full = full
        self.number = 0

    def ran(
        self, ended: float, seconds: float, *, entries: int, behind: bool, cost: int = 10, gap: float = 0.0
    ) -> float:
        """Has a batch end that completes so many entries; returns the rate after it."""
        done = []
        for _ in range(entries):
            self.number += 1
            ref = Ref(0, f"{self.number}-0".encode(), 1, cost)
            self.context.hands.take(Entry(ref, 1, f"r{self.number}", 0, 10**12, "", "", b""), ("text",))
            done.append(
                {
                    "key": f"0/{self.number}-0",
                    "bytes": 4,
                    "dim": 1,
                    "tokens": [1],
                    "read_s": 0.0,
                    "began": ended - seconds,
                }
            )
        measures = {
            "size": SIZE,
            "inputs": SIZE,
            "tokens": 1,
            "padded": 1,
            "gap": gap,
            "busy_s": 0.0,
            "failed": [],
            "done": done,
            "more": False,
        }
        measures |= {"seconds": seconds, "ended": ended, "behind": behind, "full": self.full}
        self.results.take(measures, bytes(4 * entries))
        return self.context.tokens_per_s


def test_light_load_says_nothing() -> None:
    """An engine that does what it is asked for could do more."""
    told = Told()
    assert told.ran(10.0, 1.0, entries=1, behind=False) == 0.0


def test_a_full_batch_says_what_the_engine_can_do() -> None:
    """Also with nothing behind it, as where a worker holds no more than a batch that runs and one that comes."""
    told = Told(wait_ms="auto", full=True)
    for number in range(100):
        rate = told.ran(10.0 + number, 0.5, entries=4, behind=False, gap=0.5)
    assert rate == pytest.approx(80.0, rel=0.01)


def test_batches_side_by_side_count_for_the_time_that_they_take_together() -> None:
    """Two runners that end together have done twice as much."""
    told = Told()
    told.ran(10.0, 1.0, entries=5, behind=True)
    assert told.ran(10.0, 1.0, entries=5, behind=True) == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize(("wait_ms", "expected"), [(0, 10.0), (20.0, 20.0), ("auto", 20.0)])
def test_the_way_from_one_batch_to_the_next_counts_where_nothing_is_waited_for(
    wait_ms: float | str, expected: float
) -> None:
    """Batches of ten tokens and half a second, half a second apart, while more waits than runs."""
    told = Told(wait_ms=wait_ms)
    for number in range(100):
        rate = told.ran(10.0 + number, 0.5, entries=1, behind=True, gap=0.5)
    assert rate == pytest.approx(expected, rel=0.01)


def test_idle_time_does_not_count() -> None:
    """Of two batches one leaves nothing behind: before the next one there was nothing more to do."""
    told = Told()
    for number in range(100):
        rate = told.ran(10.0 + number, 0.5, entries=1, behind=bool(number % 2), gap=0.5)
    assert rate == pytest.approx(20.0, rel=0.01)


def test_a_gap_in_which_another_runner_was_busy_does_not_count_again() -> None:
    """A runner idle for 3 s ends half a second after the other's batch of a second."""
    told = Told()
    told.ran(10.0, 1.0, entries=1, behind=True)
    rate = told.ran(10.5, 0.5, entries=1, behind=True, gap=3.0)
    assert rate == pytest.approx((0.9 * 10 + 10) / (0.9 * 1.0 + 0.5))


def test_an_entry_counts_with_its_last_batch_though_nothing_is_behind_that() -> None:
    """Three batches of a second for one entry of 30 tokens: ten a second."""
    told = Told()
    told.ran(11.0, 1.0, entries=0, behind=True)
    told.ran(12.0, 1.0, entries=0, behind=True)
    rate = told.ran(13.0, 1.0, entries=1, behind=False, cost=30)
    assert rate == pytest.approx(30 / (1 + 0.9 + 0.81))
    assert told.ran(14.0, 1.0, entries=1, behind=False) == rate
    assert told.ran(15.0, 1.0, entries=0, behind=True) == rate, "there is nothing to tell of it yet"


def test_an_answer_tells_of_the_batch_that_completed_it() -> None:
    """How long that took, in ms, and how many texts were in it."""
    told = Told()
    told.ran(10.0, 0.5, entries=2, behind=False)
    timings = [cast("Vectors", each).timing for each in told.committer.replies]
    assert [(each.inference_ms, each.batch_size) for each in timings] == [(500.0, SIZE)] * 2
