"""What a worker does when it waits for a GPU and its model fails."""

from __future__ import annotations

import asyncio
import time

import pytest
import pytest_asyncio

from gpuworker.policy.circuit import MIN_FAILURES, Circuit, CircuitOptions, CircuitState
from gpuworker.settings import WorkerSettings
from gpuworker.worker import Worker
from shared.messages import FAILING, READY, STANDBY, Entry, Ref

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def worker() -> Worker:
    """Returns a worker with a ready engine, and another worker beside it."""
    created = Worker(WorkerSettings(model="null"), "w", [], asyncio.Event())
    created._engine.ready = True
    created._shards[0].state.workers = 2
    created._status.state = READY
    return created


def fail(worker: Worker) -> None:
    """Opens its circuit for an hour."""
    circuit = Circuit(CircuitOptions(open_after_s=1e-9, backoff_s=3_600.0))
    for number in range(MIN_FAILURES):
        circuit.record_batch(0, "OSError", time.monotonic() + number * 1e-3)
    assert circuit.state(time.monotonic()) is CircuitState.OPEN
    worker._worker_state.circuit = circuit
    worker._status.set_failing()


async def test_a_worker_whose_model_fails_does_not_stand_by(worker: Worker) -> None:
    """Its state stays: the operator sees why it takes no work."""
    fail(worker)
    assert not worker._on_late()
    assert (worker._status.state, worker._worker_state.standby) == (FAILING, False)
    worker._worker_state.circuit.reset()
    assert worker._on_late()
    assert worker._status.state == STANDBY


async def test_after_standby_a_worker_is_ready_unless_its_circuit_is_open(worker: Worker) -> None:
    """A batch that ran when the wait began may have opened it."""
    assert worker._on_late()
    fail(worker)
    worker._on_grant()
    assert worker._status.state == FAILING
    worker._on_standby()
    worker._worker_state.circuit.reset()
    worker._on_grant()
    assert worker._status.state == READY


async def test_entries_are_handed_back_to_their_shards() -> None:
    """As when the model fails, or no GPU is free in time."""
    settings = WorkerSettings(model="null", redis_shards="redis://a,redis://b")
    created = Worker(settings, "w", [], asyncio.Event())
    in_flight = created._worker_state.in_flight
    entries = [Entry(Ref(0, b"1-0", 1, 1), 1, f"r{number}", 0, 10**12, "", "", b"") for number in range(2)]
    for shard, entry in enumerate(entries):
        in_flight.add(entry, shard, ("text",))
    assert created._hand_back_waiting() == 2
    assert [shard.committer._to_hand_back for shard in created._shards] == [[entry] for entry in entries]


async def test_a_worker_stands_by_only_if_each_shard_has_another_worker() -> None:
    """No other worker could run what it hands back there. What is known of a Redis that is away does not count."""
    settings = WorkerSettings(model="null", redis_shards="redis://a,redis://b")
    created = Worker(settings, "w", [], asyncio.Event())
    first, second = created._worker_state.shards
    first.workers = 2
    assert not created._on_late()
    first.refused_calls.clear()
    assert created._on_late()
    assert (second.workers, created._worker_state.standby) == (1, True)
