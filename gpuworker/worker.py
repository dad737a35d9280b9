"""One worker: claim → engine → commit, with a heartbeat beside it, until it is told to go."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import structlog

from gpuworker import metrics
from gpuworker.consumer.claimer import Claimer
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.heartbeat import HeartbeatSender
from gpuworker.consumer.in_progress import InProgressMarker
from gpuworker.consumer.inflight import key_of
from gpuworker.consumer.job_feeder import JobFeeder
from gpuworker.consumer.reclaimer import Reclaimer
from gpuworker.consumer.result_handler import ResultHandler
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.gpu.devices import Gpu
from gpuworker.gpu.sharing import LeaseCallbacks, create_sharing
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.engine_process import EngineFailedError, EngineProcess
from gpuworker.ipc.messages import (
    BatchCompleted,
    Drain,
    DropEntries,
    EntriesReturned,
    EntriesStarted,
    Message,
    Ready,
    TurnEnded,
    TurnRequested,
    TurnStarted,
)
from gpuworker.policy.hang_timeout import HangTimeout
from gpuworker.settings import WorkerSettings
from gpuworker.watchdog import Watchdog
from shared import consumer
from shared.connection import QueueConnections
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.process.tracing import Tracing

log = structlog.get_logger()

DRAIN_POLL_S = 0.01
HOPELESS_DEATHS = 2


class Worker:
    """All parts of one worker, wired.

    Args:
        settings: of its process, with the one device of this worker.
        name: of the worker and its consumer.
        seen: the GPUs that its process sees.
        stop: set when it is to drain and go.
        tracing: makes the spans, if requests are traced.

    Attributes:
        missing: returns what keeps it from serving.
        alive: returns whether its event loop still comes round.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        name: str,
        seen: Sequence[Gpu],
        stop: asyncio.Event,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._queue = QueueConnections(settings, settings.queue_name, f"worker:{name}")
        self._claim_link = self._queue.connection("claim", identified=True)
        self._worker_state = WorkerState(settings, name, self._queue.keys, self._queue.connection("control"))
        if tracing is not None:
            self._trace(tracing)
        self._committer = Committer(self._worker_state, self._queue.connection("commit"))
        options = EngineOptions.of(settings)
        told = LeaseCallbacks(
            until=lambda until: self._engine.grant(until),  # noqa: PLW0108 - it comes below
            send=lambda message: self._engine.send(message),  # noqa: PLW0108
            lost=self._on_loss,
            stands_by=self._on_standby,
            granted=self._on_grant,
        )
        self._sharing = create_sharing(settings, name, self._queue.connection("lease"), told, seen)
        self._engine = EngineProcess(options, self._sharing.granted, self._on_frame, self._on_ready, self._on_death)
        self._begun = InProgressMarker(self._worker_state, self._queue.connection("begun"))
        keeper_link = self._queue.connection("keep", identified=True)
        self._claimer = Claimer(self._worker_state, self._claim_link, keeper_link, self._engine, self._committer)
        self._keeper = Reclaimer(self._worker_state, keeper_link, self._claimer, self._drop)
        self._feeder = JobFeeder(self._worker_state, lambda: self._claimer.batch_tokens)
        self._pacemaker = HeartbeatSender(self._worker_state, settings.heartbeat_ttl_s, seen)
        self.missing, self.alive = self._pacemaker.missing, self._pacemaker.alive
        wait_ms = settings.max_batch_wait_ms
        self._patience = HangTimeout(settings.engine_hang_s, 0.0 if wait_ms == "auto" else wait_ms / 1000)
        self._watchdog = Watchdog(self._worker_state, self._engine, self._patience, self._sharing)
        self._result_handler = ResultHandler(self._worker_state, self._committer)
        self._unbegun: asyncio.Future[list[str]] | None = None
        self._stop = stop

    def _trace(self, tracing: Tracing) -> None:
        from gpuworker.tracing import Spans  # noqa: PLC0415 - it imports OpenTelemetry

        worker_state = self._worker_state
        worker_state.spans = Spans(tracing.tracer, self._settings.queue_name, worker_state.worker, worker_state.in_flight)

    async def run(self) -> int:
        """Works until it is told to stop; returns 0 after a drain, 2 for a model that cannot be served, else 1."""
        claiming = asyncio.create_task(self._claimer.run(), name="claim")
        parts = [
            asyncio.create_task(part, name=name)
            for name, part in (
                ("engine", self._engine.run()),
                ("commit", self._committer.run()),
                ("begun", self._begun.run()),
                ("keep", self._keeper.run()),
                ("feed", self._feeder.run()),
                ("watch", self._watchdog.run()),
                ("lease", self._sharing.run()),
                ("heartbeat", self._pacemaker.run()),
            )
        ]
        ticking = asyncio.create_task(self._pacemaker.tick(), name="tick")  # to the end: to leave may take Redis long
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([stopping, claiming, *parts], return_when=asyncio.FIRST_COMPLETED)
            failed = [task for task in (claiming, *parts) if task.done()]
            if failed:
                return self._report(failed[0])
            await self._drain(claiming)
            return 0
        finally:
            await cancel_and_wait([stopping, claiming, *parts])
            try:
                await self._leave()
            finally:
                await self._engine.stop()
                await self._sharing.leave()
                await self._queue.close()
                await cancel_and_wait([ticking])

    def _report(self, task: asyncio.Task[None]) -> int:
        error = task.exception()
        if isinstance(error, EngineFailedError):
            log.error("the model cannot be served", reason=str(error))
            sys.stderr.write(f"{error}\n")
            return 2
        log.error("worker failed", part=task.get_name(), exc_info=error)
        return 1

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        """Stops claiming, gives back what has not begun, and finishes the rest within the grace time."""
        worker_state = self._worker_state
        self._pacemaker.drain()
        self._claimer.stopping = True
        worker_state.in_flight.capacity_freed.set()
        log.info("worker drains", holds=len(worker_state.in_flight))
        ends = time.monotonic() + self._settings.drain_grace_s
        while not claiming.done() and time.monotonic() < ends:
            try:
                await worker_state.control.unblock(self._claim_link)
            except RedisUnreachableError:
                break
            await asyncio.wait([claiming], timeout=DRAIN_POLL_S)
        unbegun = await self._ask_unbegun(ends)
        held = [worker_state.in_flight.get(key) for key in unbegun]
        self._committer.hand_back([each.entry for each in held if each is not None and not each.answered])
        await worker_state.in_flight.wait_until_empty(ends - time.monotonic())
        log.info("worker drained", handed_back=len(unbegun), left=len(worker_state.in_flight))

    async def _ask_unbegun(self, ends: float) -> list[str]:
        if not self._engine.ready:
            return self._unanswered_keys()
        self._unbegun = asyncio.get_running_loop().create_future()
        self._engine.send(Drain())
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                return await self._unbegun
        except TimeoutError:
            return []

    def _unanswered_keys(self) -> list[str]:
        return [key_of(each.entry) for each in self._worker_state.in_flight.unanswered()]

    async def _leave(self) -> None:
        """Gives what is left to others, and takes the name out of the group."""
        worker_state, connection = self._worker_state, self._worker_state.control
        left = [each.entry for each in worker_state.in_flight.entries()]
        try:
            if left:
                await consumer.hand_back(connection, worker_state.keys, worker_state.worker, left)
            owed = await consumer.leave(connection, worker_state.keys, worker_state.worker)
        except RedisUnreachableError as error:
            log.warning("cannot leave the group", reason=error.message)
            return
        if owed:
            log.warning("left with entries owed: another worker takes them", n=owed)

    def _on_ready(self, ready: Ready) -> None:
        log.info("engine ready", model=ready.model, device=ready.device, dim=ready.dim)
        self._claimer.batch_tokens = ready.max_batch_tokens
        self._patience.restarted()
        self._worker_state.revision = ready.revision
        self._pacemaker.ready(ready)
        self._claimer.send_to_engine(self._worker_state.in_flight.unanswered())
        self._worker_state.in_flight.capacity_freed.set()

    def _on_standby(self) -> None:
        self._worker_state.standby = True
        self._pacemaker.stand_by()

    def _on_grant(self) -> None:
        self._worker_state.standby = False
        self._pacemaker.loading()

    def _on_loss(self) -> None:
        """The GPU is another's: the engine ends at once, and others run what it held, for which nobody is blamed."""
        self._worker_state.in_flight.clear_runs()
        self._engine.kill()
        self._give_away()

    def _give_away(self) -> None:
        self._committer.hand_back([each.entry for each in self._worker_state.in_flight.unanswered()])

    def _on_death(self, in_a_row: int) -> None:
        if self._sharing.died():  # it had to end
            self._worker_state.in_flight.clear_runs()
            self._give_away()
        if not self._worker_state.standby:
            self._pacemaker.loading()
        self._worker_state.in_flight.count_attempts()
        self._begun.interrupted()
        if self._worker_state.spans is not None:
            self._worker_state.spans.discard_open_batches()
        if self._unbegun is not None and not self._unbegun.done():
            self._unbegun.set_result(self._unanswered_keys())
        elif in_a_row >= HOPELESS_DEATHS:
            log.warning("the engine does not come up: giving what is held to other workers")
            self._give_away()

    def _on_frame(self, message: Message, payload: bytes) -> None:
        match message:
            case TurnRequested() | TurnStarted() | TurnEnded():
                self._sharing.heard(message)
            case EntriesStarted():
                self._worker_state.in_flight.mark_started(message.keys)
                self._begun.changed()
            case BatchCompleted():
                self._learn(message)
                self._result_handler.handle(message, payload)
                if message.paused:
                    self._worker_state.in_flight.mark_paused(message.paused)
                    self._begun.changed()
            case EntriesReturned() if self._unbegun is not None and not self._unbegun.done():
                self._unbegun.set_result(list(message.keys))
            case _:
                pass

    def _learn(self, completed: BatchCompleted) -> None:
        """Takes in what a batch says of the model."""
        if not completed.size or completed.more:
            return
        self._patience.ran(completed.seconds, completed.full_s)
        if completed.max_batch_tokens < self._claimer.batch_tokens:
            self._claimer.batch_tokens = completed.max_batch_tokens
            log.warning("out of memory: batches are smaller from now on", max_batch_tokens=self._claimer.batch_tokens)
        metrics.MAX_TOKENS.labels(self._worker_state.worker).set(self._claimer.batch_tokens)

    def _drop(self, keys: list[str]) -> None:
        self._engine.send(DropEntries(keys))
