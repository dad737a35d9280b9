"""One worker: claim → engine → commit, with a heartbeat beside it, until it is stopped."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from functools import partial

import structlog

from gpuworker import metrics
from gpuworker.consumer.circuit_breaker import CircuitBreaker
from gpuworker.consumer.claim_turns import ClaimTurns
from gpuworker.consumer.inflight import InFlightEntries, InFlightEntry
from gpuworker.consumer.result_handler import ResultHandler
from gpuworker.consumer.shard_consumer import ShardConsumer
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.consumer.worker_status import WorkerStatus, describe_model
from gpuworker.gpu.devices import Gpu
from gpuworker.gpu.sharing import LeaseCallbacks, TurnEvent, create_sharing
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.engine_process import EngineFailedError, EngineProcess
from gpuworker.ipc.messages import (
    BatchCompleted,
    Drain,
    EntriesReturned,
    GrantTurn,
    Message,
    Ready,
    TurnEnded,
    TurnRequested,
    TurnStarted,
)
from gpuworker.memory_meter import MemoryMeter
from gpuworker.model_spec import is_function
from gpuworker.policy.circuit import CircuitState
from gpuworker.policy.hang_timeout import HangTimeout
from gpuworker.policy.standby import StandbyRule
from gpuworker.settings import WorkerSettings
from gpuworker.watchdog import Watchdog
from shared.connection import RedisConnection
from shared.long_entries import min_long_tokens
from shared.process.log_text import MODEL_FAILS
from shared.process.tasks import cancel_and_wait, run_forever
from shared.process.tracing import Tracing
from shared.process.unexpected_replies import record_failing_call, record_unexpected_reply
from shared.queue_connections import QueueConnections
from shared.usage_counts import UsageCounts
from shared.usage_flusher import UsageFlusher

log = structlog.get_logger()

MAX_DEATHS_IN_A_ROW = 2
"""After this many deaths without a ready engine between them, entries are handed back to other workers."""


class Worker:
    """The parts of one worker.

    Args:
        settings: of its process, with the one device of this worker.
        name: of the worker and its consumer.
        gpus: the GPUs that its process sees.
        stop: set to drain and end it.
        tracing: creates the spans, if requests are traced.

    Attributes:
        missing_parts: returns what keeps it from serving.
        is_alive: returns whether its event loop still runs.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        name: str,
        gpus: Sequence[Gpu],
        stop: asyncio.Event,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings, self._stop, self._gpus = settings, stop, gpus
        connections = [
            QueueConnections(each, settings.queue_name, f"worker:{name}", record_unexpected_reply)
            for each in settings.shards
        ]
        worker_state = self._worker_state = WorkerState(settings, name, InFlightEntries(len(connections)))
        if tracing is not None:
            self._trace(tracing)
        lease_connection = connections[0].shared_connection("lease")
        self._sharing = create_sharing(settings, name, lease_connection, self._lease_callbacks(), gpus)
        self._engine = EngineProcess(
            EngineOptions.from_settings(settings),
            worker_state.in_flight.runs.descriptor,
            self._sharing.wait_until_granted,
            self._on_frame,
            self._on_ready,
            self._on_death,
        )
        self._status = WorkerStatus(worker_state)
        self.missing_parts, self.is_alive = self._status.missing_parts, self._status.is_alive
        turns = ClaimTurns(len(connections), settings.bulk)
        self._shards = [
            ShardConsumer(worker_state, each, self._engine, self._status, turns, gpus) for each in connections
        ]
        self._hang_timeout = HangTimeout(settings.engine_hang_s, _longest_wait_s(settings))
        self._watchdog = Watchdog(worker_state, self._engine, self._hang_timeout, self._sharing)
        self._result_handler = ResultHandler(worker_state, [shard.committer for shard in self._shards])
        self._circuit_breaker = CircuitBreaker(worker_state, self._status, self._hand_back_waiting)
        connection = connections[0].shared_connection("usage", self._shards[0].state.control)
        self._usage = _usage_flusher(connection, name, worker_state.usage)
        self._returned_keys: asyncio.Future[list[str]] | None = None
        self._standby_rule, self._load_error = StandbyRule(), ""

    def _lease_callbacks(self) -> LeaseCallbacks:
        return LeaseCallbacks(
            on_extended=lambda until: self._engine.grant(until),  # noqa: PLW0108 - the engine is created later
            on_turn=lambda lock: self._engine.send(GrantTurn(lock)),
            on_lost=self._on_loss,
            on_standby=self._on_standby,
            on_late=self._on_late,
            on_granted=self._on_grant,
        )

    def _trace(self, tracing: Tracing) -> None:
        from gpuworker.tracing import Spans  # noqa: PLC0415 - it imports OpenTelemetry

        worker_state = self._worker_state
        worker_state.spans = Spans(
            tracing.tracer, self._settings.queue_name, worker_state.worker, worker_state.in_flight
        )

    async def run(self) -> int:
        """Works until it is stopped; returns 0 after a drain, 2 for a model that cannot be served, else 1."""
        parts = [
            asyncio.create_task(part, name=name)
            for name, part in (
                ("engine", self._engine.run()),
                ("watchdog", self._watchdog.run()),
                ("lease", self._sharing.run()),
                ("memory", MemoryMeter(self._status, self._gpus).run()),
                ("usage", run_forever(self._usage.run)),
            )
        ]
        parts += [task for shard in self._shards for task in shard.start()]
        ticking = asyncio.create_task(
            self._status.tick(), name="tick"
        )  # to the end: leaving the group may take Redis long
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
            failed = [task for task in parts if task.done()]
            if failed:
                return self._exit_code(failed[0])
            await self._drain()
            return 0
        finally:
            await cancel_and_wait([stopping, *parts])
            try:
                await self._usage.stop()
                await asyncio.gather(*(shard.leave(self._load_error) for shard in self._shards))
            finally:
                await self._engine.stop()
                await self._sharing.leave()
                await asyncio.gather(*(shard.close() for shard in self._shards))
                await cancel_and_wait([ticking])

    def _exit_code(self, task: asyncio.Task[None]) -> int:
        error = task.exception()
        if isinstance(error, EngineFailedError):
            self._load_error = str(error)
            log.error(MODEL_FAILS, reason=self._load_error)
            return 2
        log.error("worker failed", part=task.get_name(), exc_info=error)
        return 1

    async def _drain(self) -> None:
        """Stops claiming, hands back entries that have not begun, and finishes the others within the grace time."""
        worker_state = self._worker_state
        self._status.set_draining()
        worker_state.stopping = True
        worker_state.in_flight.wake_claimers()
        log.info("worker drains", holds=len(worker_state.in_flight))
        ends = time.monotonic() + self._settings.drain_grace_s
        await asyncio.gather(*(shard.stop_claiming(ends) for shard in self._shards))
        returned = await self._drain_engine(ends)
        held = [worker_state.in_flight.get(key) for key in returned]
        self._hand_back(each for each in held if each is not None and not each.answered)
        await worker_state.in_flight.wait_until_empty(ends - time.monotonic())
        log.info("worker drained", handed_back=len(returned), left=len(worker_state.in_flight))

    async def _drain_engine(self, ends: float) -> list[str]:
        if not self._engine.ready:
            return self._unanswered_keys()
        self._returned_keys = asyncio.get_running_loop().create_future()
        self._engine.send(Drain())
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                return await self._returned_keys
        except TimeoutError:
            return []

    def _unanswered_keys(self) -> list[str]:
        return [each.key for each in self._worker_state.in_flight.unanswered()]

    def _on_ready(self, ready: Ready) -> None:
        log.info("engine ready", model=ready.model, device=ready.device, **describe_model(ready))
        worker_state = self._worker_state
        worker_state.batch_tokens, worker_state.revision = ready.max_batch_tokens, ready.revision
        worker_state.in_flight.max_counted_tokens = min_long_tokens(ready.max_batch_tokens)
        self._hang_timeout.reset()
        worker_state.circuit.reset()
        self._status.set_ready(ready)
        if worker_state.standby:
            self._status.set_standby()
        for shard in self._shards:
            shard.send_to_engine()
        worker_state.in_flight.wake_claimers()

    def _on_standby(self) -> None:
        self._worker_state.standby = True
        self._status.set_standby()

    def _on_late(self) -> bool:
        """Stands by and hands back the entries that wait for a GPU, if other workers may take them.

        A worker whose model fails does not stand by: its state says so, and it has handed its entries back.
        """
        if self._worker_state.circuit.state(time.monotonic()) is not CircuitState.CLOSED:
            return False
        if not self._standby_rule.should_stand_by(self._fewest_workers()):
            return False
        self._on_standby()
        log.warning("no gpu in time: the worker stands by", handed_back=self._hand_back_waiting())
        return True

    def _fewest_workers(self) -> int:
        """Returns how many workers the shard with the fewest has, of those whose Redis answers if any does."""
        shards = self._worker_state.shards
        return min(shard.workers for shard in [each for each in shards if each.is_served] or shards)

    def _on_grant(self) -> None:
        if not self._worker_state.standby:
            return
        self._worker_state.standby = False
        if self._engine.ready and self._worker_state.circuit.state(time.monotonic()) is CircuitState.OPEN:
            self._status.set_failing()
        elif self._engine.ready:
            self._status.set_resumed()
        else:
            self._status.set_loading()
        self._worker_state.in_flight.wake_claimers()

    def _on_loss(self) -> None:
        """Ends the engine at once: another worker has the GPU. Others run its entries, and none of these is accused."""
        self._worker_state.in_flight.clear_runs()
        self._engine.kill()
        self._hand_back_unanswered()

    def _hand_back(self, entries: Iterable[InFlightEntry]) -> None:
        for each in entries:
            self._shards[each.shard].committer.hand_back([each.entry])

    def _hand_back_unanswered(self) -> None:
        self._hand_back(self._worker_state.in_flight.unanswered())

    def _hand_back_waiting(self) -> int:
        """Hands back the entries that do not run; returns how many."""
        waiting = self._worker_state.in_flight.withdraw_waiting()
        self._engine.drop([each.key for each in waiting])
        self._hand_back(waiting)
        return len(waiting)

    def _on_death(self, in_a_row: int) -> None:
        if self._sharing.handle_death():  # it had to end, and accuses no entry
            self._worker_state.in_flight.clear_runs()
            self._hand_back_unanswered()
        if not self._worker_state.standby:
            self._status.set_loading()
        self._worker_state.in_flight.count_attempts()
        for shard in self._shards:
            shard.reset_in_progress()
        if self._worker_state.spans is not None:
            self._worker_state.spans.discard_open_batches()
        if self._returned_keys is not None and not self._returned_keys.done():
            self._returned_keys.set_result(self._unanswered_keys())
        elif in_a_row >= MAX_DEATHS_IN_A_ROW:
            log.warning("the engine does not start: entries are handed back to other workers")
            self._hand_back_unanswered()

    def _on_frame(self, message: Message, payload: bytes) -> None:
        match message:
            case TurnRequested():
                self._sharing.handle_turn(TurnEvent.REQUESTED)
            case TurnStarted():
                self._sharing.handle_turn(TurnEvent.STARTED)
            case TurnEnded():
                self._sharing.handle_turn(TurnEvent.ENDED)
            case BatchCompleted():
                self._learn(message)
                self._result_handler.handle(message, payload)
                self._circuit_breaker.record_batch(message)
            case EntriesReturned() if self._returned_keys is not None and not self._returned_keys.done():
                self._returned_keys.set_result(list(message.keys))
            case _:
                pass

    def _learn(self, completed: BatchCompleted) -> None:
        """Learns the hang timeout and the token limit from a batch."""
        if not completed.size or completed.more:
            return
        self._standby_rule.record_batch()
        self._hang_timeout.record_batch(completed.run_s, completed.full_batch_s)
        worker_state, max_tokens = self._worker_state, completed.max_batch_tokens
        if max_tokens < worker_state.batch_tokens:
            worker_state.batch_tokens = max_tokens
            log.warning("out of memory: batches are smaller from now on", max_batch_tokens=max_tokens)
        metrics.MAX_TOKENS.labels(worker_state.worker).set(worker_state.batch_tokens)


def _longest_wait_s(settings: WorkerSettings) -> float:
    """Returns how long an engine may be idle with work to do: it waits for more inputs, or to run an input again."""
    retry_s = settings.retries.limits.longest_delay_s if is_function(settings.model) else 0.0
    return retry_s + (settings.batching.wait_s or 0.0)


def _usage_flusher(connection: RedisConnection, name: str, counts: UsageCounts) -> UsageFlusher:
    """Returns what writes the counts of this run of a worker."""
    on_error = partial(record_failing_call, "usage is not written")
    return UsageFlusher(lambda: connection, f"{name}:{secrets.token_hex(8)}", counts, metrics.count_usage, on_error)
