"""What a worker reports of itself: whether it loads, serves or fails, and whether it is ready and alive."""

from __future__ import annotations

import asyncio
import math
import time
from typing import NamedTuple

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.ipc.messages import Ready
from gpuworker.model_spec import is_function
from gpuworker.model_type import name_of_ops
from shared.messages import DRAINING, FAILING, LOADING, READY, STANDBY

TICK_S = 1.0
STUCK_S = 10.0
"""An event loop that has not ticked for this long counts as dead."""


MAX_MEMORY_AGE_S = 10.0
MAX_LOGGED_LABELS = 10


class Memory(NamedTuple):
    """The resident memory of the engine, and what all processes use of its GPU's, as in a heartbeat; 0 if unknown."""

    memory_bytes: int
    gpu_used_bytes: int


NO_MEMORY = Memory(0, 0)


class WorkerStatus:
    """The status of one worker, which is the same for all its shards.

    Attributes:
        state: one of shared.messages.STATES.
        engine: what its last engine has reported of the model; without a model before the first one is ready.
    """

    def __init__(self, worker_state: WorkerState) -> None:
        self._worker_state = worker_state
        self._last_tick = time.monotonic()
        self.state = LOADING
        self.engine = Ready()
        self._memory, self._measured_at = NO_MEMORY, -math.inf
        metrics.HELD.labels(worker_state.worker).set_function(worker_state.in_flight.__len__)
        self._set_up(up=False)  # also while the first engine loads, which may never finish

    async def tick(self) -> None:
        """Notes that the event loop runs, however long Redis takes for an answer; until cancelled."""
        while True:
            self._last_tick = time.monotonic()
            await asyncio.sleep(TICK_S)

    def set_memory(self, engine_bytes: int, gpu_used_bytes: int) -> None:
        """Records the memory that the engine has, and that all processes use of its GPU; 0 is unknown."""
        self._memory, self._measured_at = Memory(engine_bytes, gpu_used_bytes), time.monotonic()

    def memory(self) -> Memory:
        """Returns the memory in use; unknown if it was measured long ago, as while the driver hangs."""
        return self._memory if time.monotonic() - self._measured_at < MAX_MEMORY_AGE_S else NO_MEMORY

    def set_ready(self, engine: Ready) -> None:
        """Records that the engine is ready, with what its message reports of the model."""
        self.engine = engine
        self._set_state(READY)
        self._set_up(up=True)

    def set_resumed(self) -> None:
        """Records that the engine, which was ready before the worker stood by, is ready again."""
        self.set_ready(self.engine)

    def set_loading(self) -> None:
        """Records that the next engine loads."""
        self._set_state(LOADING)
        self._set_up(up=False)

    def set_standby(self) -> None:
        """Records that another worker has the GPU. This is a normal state: probes report nothing wrong."""
        self._set_state(STANDBY)
        self._set_up(up=False)

    def set_failing(self) -> None:
        """Records that the model fails on every batch, so that this worker claims nothing for a while."""
        self._set_state(FAILING)
        self._set_up(up=False)

    def set_working(self) -> None:
        """Records that a failing model may have work again."""
        if self.state == FAILING:
            self._set_state(READY)
            self._set_up(up=True)

    def set_draining(self) -> None:
        """Records that the worker is about to leave; from now on the engine does not change the state."""
        self._set_state(DRAINING)

    def _set_up(self, *, up: bool) -> None:
        metrics.UP.labels(self._worker_state.worker, self._worker_state.settings.model).set(up)

    def _set_state(self, state: str) -> None:
        if self.state != DRAINING:
            self.state = state
            for shard in self._worker_state.shards:
                shard.heartbeat_due.set()

    def missing_parts(self) -> list[str]:
        """Returns what keeps this worker from serving: `redis`, `engine` or both; or that its model fails, and how.

        Redis is not missing while that of any shard answers.
        """
        missing = [] if any(shard.is_served for shard in self._worker_state.shards) else ["redis"]
        if self.state == FAILING:
            return [*missing, f"model_failing: {self._worker_state.circuit.reason}"]
        return missing if self.state in (READY, STANDBY) else [*missing, "engine"]

    def is_alive(self) -> bool:
        """Returns whether the event loop still runs. Redis has no influence: its outage must restart no engine."""
        return time.monotonic() - self._last_tick < STUCK_S


def describe_model(ready: Ready) -> dict[str, object]:
    """Returns what the log says of a model of texts; nothing for a function."""
    if is_function(ready.model):
        return {}
    description: dict[str, object] = {
        "type": name_of_ops(ready.ops),
        "operations": sorted(ready.ops),
        "dim": ready.dim,
        "dtype": ready.dtype,
        "pooling": ready.pooling,
        "max_input_tokens": ready.max_input_tokens,
        "packed": ready.packs,
    }
    if ready.labels:
        description |= {"labels": list(ready.labels[:MAX_LOGGED_LABELS]), "activation": ready.activation}
    if len(ready.labels) > MAX_LOGGED_LABELS:
        description["num_labels"] = len(ready.labels)
    return description
