"""Stops the claims of a worker whose model fails on every batch, and lets it try again later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.ipc.messages import BatchCompleted
from gpuworker.policy.circuit import Circuit, CircuitState

log = structlog.get_logger()

MIN_DELAY_S = 0.001


class CircuitBreaker:
    """Follows the circuit of the worker state: when it opens, the entries that have not started go to other workers.

    Those that run are answered by their results. While it is half open, the worker claims one entry, as an attempt.

    Args:
        worker_state: gets the circuit, which the claimers obey.
        status: reports the state.
        hand_back_waiting: hands back the entries that do not run.
    """

    def __init__(
        self, worker_state: WorkerState, status: WorkerStatus, hand_back_waiting: Callable[[], object]
    ) -> None:
        worker_state.circuit = Circuit(worker_state.settings.circuit)
        self._worker_state = worker_state
        self._status = status
        self._hand_back_waiting = hand_back_waiting

    def record_batch(self, completed: BatchCompleted) -> None:
        """Learns from a batch; opens or closes the circuit."""
        if completed.more:
            return
        circuit, now = self._worker_state.circuit, time.monotonic()
        was_closed = circuit.state(now) is CircuitState.CLOSED
        # Each input counts once: the retries of one bad input must not stop all others. Except while half-open: then
        # the retries of an entry that ran when the circuit opened are the attempt, since no other entry is claimed.
        counts = completed.errors and not (completed.is_retry and was_closed)
        error = completed.errors[-1] if counts else ""
        if circuit.record_batch(completed.num_outputs, error, now, completed.run_s):
            self._open(circuit.open_s(now))
        elif not was_closed and circuit.state(now) is CircuitState.CLOSED:
            log.info("the model works again: entries are claimed")
            self._status.set_working()
            self._worker_state.in_flight.wake_claimers()

    def _open(self, for_s: float) -> None:
        reason = self._worker_state.circuit.reason
        log.error("the model fails on every batch: no entries are claimed", error=reason, for_s=round(for_s, 1))
        metrics.CIRCUIT_OPENED.inc()
        self._status.set_failing()
        self._hand_back_waiting()
        asyncio.get_running_loop().call_later(for_s, self._try_again)

    def _try_again(self) -> None:
        circuit, now = self._worker_state.circuit, time.monotonic()
        state = circuit.state(now)
        if state is CircuitState.OPEN:  # it opened again; or the timer was early: uvloop counts whole milliseconds
            asyncio.get_running_loop().call_later(max(MIN_DELAY_S, circuit.open_s(now)), self._try_again)
        elif state is CircuitState.HALF_OPEN:
            self._status.set_working()
            self._worker_state.in_flight.wake_claimers()
