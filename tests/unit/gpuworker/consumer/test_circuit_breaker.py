"""What a worker does when its model fails on every batch."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gpuworker.consumer.circuit_breaker import CircuitBreaker
from gpuworker.consumer.heartbeat import HeartbeatSender
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.ipc.messages import BatchCompleted
from gpuworker.settings import WorkerSettings
from shared.keys import Keys
from shared.messages import FAILING, READY, Entry, Ref
from shared.queue_connections import QueueConnections
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

BACKOFF_S = 0.5
FAILED = BatchCompleted(size=1, errors=("KeyError", "OSError"))
WORKED = BatchCompleted(size=1, num_outputs=1, errors=("OSError",))


class Harness:
    """A circuit breaker with the state of its worker, and a list of what was handed back."""

    def __init__(self, backoff_s: float = BACKOFF_S) -> None:
        # Its circuit opens at the fifth failure.
        settings = WorkerSettings(model="null", circuit_after_s=1e-9, circuit_backoff_s=backoff_s)
        self.state = WorkerState(settings, "w")
        self.shard = ShardState(self.state, Keys("q"), cast("Any", None))
        self.status = WorkerStatus(self.state)
        self.heartbeat = HeartbeatSender(
            self.shard, self.status, [], QueueConnections(self.state.settings, "q", "test")
        )
        self.status.state = READY
        self.handed_back: list[Entry] = []
        self.breaker = CircuitBreaker(self.state, self.status, self.hand_back_waiting)

    def hand_back_waiting(self) -> None:
        """Takes the place of the worker."""
        self.handed_back += [each.entry for each in self.state.in_flight.withdraw_waiting()]

    def hold(self, number: int) -> Entry:
        """Holds an entry."""
        entry = Entry(Ref(0, f"{number}-0".encode(), 1, 1), 1, f"r{number}", 0, 10**12, "", "", b"")
        self.state.in_flight.add(entry, 0, ("text",))
        return entry

    def run(self, number: int) -> None:
        """Lets an entry that is held run."""
        self.state.in_flight.runs.begin([self.state.in_flight.entries()[number].slot])

    def fail(self) -> None:
        """Reports batches that fail until the circuit opens."""
        while self.status.state != FAILING:
            self.breaker.record_batch(FAILED)


async def test_entries_that_have_not_started_go_to_other_workers() -> None:
    """Those that run are answered by their results; late results of the others are ignored."""
    harness = Harness()
    running, waiting, answered = (harness.hold(number) for number in range(3))
    harness.run(0)
    harness.state.in_flight.entries()[2].answered = True
    harness.fail()
    assert harness.handed_back == [waiting]
    assert [each.answered for each in harness.state.in_flight.entries()] == [False, True, True]
    assert running not in harness.handed_back
    assert answered not in harness.handed_back


async def test_the_state_says_why_and_ends_after_the_backoff() -> None:
    """Then the worker is ready for an attempt; another failure opens the circuit again, and an output closes it."""
    harness = Harness()
    harness.shard.refused_calls.clear()
    harness.fail()
    assert harness.status.missing_parts() == ["model_failing: OSError"]
    beat = harness.heartbeat._heartbeat()
    assert (beat.state, beat.failing, 0 < beat.retry_s <= BACKOFF_S) == (FAILING, "OSError", True)
    await wait_until(lambda: harness.status.state == READY, "the backoff has passed")
    assert harness.status.missing_parts() == []
    beat = harness.heartbeat._heartbeat()
    assert (beat.state, beat.failing, beat.retry_s) == (READY, "OSError", 0), "it is about to try"
    harness.breaker.record_batch(FAILED)
    assert harness.status.state == FAILING
    harness.breaker.record_batch(WORKED)
    assert harness.status.state == READY
    assert not harness.heartbeat._heartbeat().failing
    assert harness.state.circuit.open_s(time.monotonic()) == 0.0


async def test_another_attempt_at_an_input_is_no_other_failure() -> None:
    """The first attempt has counted; an output of a later one still says that the model works."""
    harness = Harness()
    for _ in range(100):
        harness.breaker.record_batch(replace(FAILED, is_retry=True))
    assert harness.status.state == READY
    harness.fail()
    harness.breaker.record_batch(replace(WORKED, is_retry=True))
    assert harness.status.state == READY


async def test_the_retries_of_a_held_entry_are_the_attempt_of_a_half_open_circuit() -> None:
    """It ran when the circuit opened, and while it is held no other is claimed: its failure opens the circuit again."""
    harness = Harness(backoff_s=0.01)
    harness.hold(0)
    harness.run(0)
    harness.fail()
    await wait_until(lambda: harness.status.state == READY, "the backoff has passed")
    assert harness.state.circuit.max_entries(time.monotonic(), len(harness.state.in_flight)) == 0
    harness.breaker.record_batch(replace(FAILED, is_retry=True))
    assert harness.status.state == FAILING


async def test_a_part_of_a_result_does_not_count() -> None:
    """A long result takes several messages, and only the last has the errors."""
    harness = Harness()
    for _ in range(100):
        harness.breaker.record_batch(BatchCompleted(more=True, size=1, errors=("OSError",)))
    await asyncio.sleep(0)
    assert harness.status.state == READY


async def test_a_timer_that_is_early_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers of uvloop may be some tenths of a millisecond early, when the circuit is open still."""
    harness = Harness(backoff_s=60)
    harness.fail()
    opened_until = time.monotonic() + harness.state.circuit.open_s(time.monotonic())
    early = opened_until - 0.0008
    monkeypatch.setattr("gpuworker.consumer.circuit_breaker.time", SimpleNamespace(monotonic=lambda: early))
    harness.breaker._try_again()
    assert harness.status.state == FAILING
    monkeypatch.setattr("gpuworker.consumer.circuit_breaker.time", SimpleNamespace(monotonic=lambda: opened_until + 1))
    await wait_until(lambda: harness.status.state == READY, "the second timer tries")
