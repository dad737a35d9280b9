"""What a worker does when it waits for a GPU and its model fails."""

from __future__ import annotations

import asyncio
import time

import pytest
import pytest_asyncio

from gpuworker.policy.circuit import MIN_FAILURES, Circuit, CircuitOptions, CircuitState
from gpuworker.settings import WorkerSettings
from gpuworker.worker import Worker
from shared.messages import FAILING, READY, STANDBY

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
