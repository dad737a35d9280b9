"""One worker: claim → engine → commit, with a heartbeat beside it, until it is told to go."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import structlog

from gpuworker import metrics
from gpuworker.consumer.in_progress import Begun
from gpuworker.consumer.claimer import Claimer
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.worker_state import Context
from gpuworker.gpu.devices import Gpu
from gpuworker.ipc.engine_process import EngineFailed, EngineHost
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.consumer.job_feeder import Feeder
from gpuworker.ipc.frames import Header
from gpuworker.consumer.inflight import key_of
from gpuworker.consumer.reclaimer import Keeper
from gpuworker.consumer.heartbeat import Pacemaker
from gpuworker.policy.hang_timeout import Patience
from gpuworker.consumer.result_handler import Results
from gpuworker.settings import WorkerSettings
from gpuworker.gpu.sharing import Bound, tenancy_of
from gpuworker.watchdog import Watchdog
from shared.process.tasks import end
from shared.process.tracing import Tracing
from shared import consumer
from shared.errors import RedisUnreachable
from shared.connection import Queue

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
        self._queue = Queue(settings, settings.queue_name, f"worker:{name}")
        self._claim_link = self._queue.link("claim", identified=True)
        self._context = Context(settings, name, self._queue.keys, self._queue.link("control"))
        if tracing is not None:
            self._trace(tracing)
        self._committer = Committer(self._context, self._queue.link("commit"))
        options = EngineOptions.of(settings)
        told = Bound(
            until=lambda until: self._engine.grant(until),  # noqa: PLW0108 - it comes below
            send=lambda header: self._engine.send(header),  # noqa: PLW0108
            lost=self._on_loss,
            stands_by=self._on_standby,
            granted=self._on_grant,
        )
        self._tenancy = tenancy_of(settings, name, self._queue.link("lease"), told, seen)
        self._engine = EngineHost(options, self._tenancy.granted, self._on_frame, self._on_ready, self._on_death)
        self._begun = Begun(self._context, self._queue.link("begun"))
        keeper_link = self._queue.link("keep", identified=True)
        self._claimer = Claimer(self._context, self._claim_link, keeper_link, self._engine, self._committer)
        self._keeper = Keeper(self._context, keeper_link, self._claimer, self._drop)
        self._feeder = Feeder(self._context, lambda: self._claimer.batch_tokens)
        self._pacemaker = Pacemaker(self._context, settings.heartbeat_ttl_s, seen)
        self.missing, self.alive = self._pacemaker.missing, self._pacemaker.alive
        wait_ms = settings.max_batch_wait_ms
        self._patience = Patience(settings.engine_hang_s, 0.0 if wait_ms == "auto" else wait_ms / 1000)
        self._watchdog = Watchdog(self._context, self._engine, self._patience, self._tenancy)
        self._results = Results(self._context, self._committer)
        self._unbegun: asyncio.Future[list[str]] | None = None
        self._stop = stop

    def _trace(self, tracing: Tracing) -> None:
        from gpuworker.tracing import Spans  # noqa: PLC0415 - it imports OpenTelemetry

        context = self._context
        context.spans = Spans(tracing.tracer, self._settings.queue_name, context.worker, context.hands)

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
                ("lease", self._tenancy.run()),
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
            await end([stopping, claiming, *parts])
            try:
                await self._leave()
            finally:
                await self._engine.stop()
                await self._tenancy.leave()
                await self._queue.close()
                await end([ticking])

    def _report(self, task: asyncio.Task[None]) -> int:
        error = task.exception()
        if isinstance(error, EngineFailed):
            log.error("the model cannot be served", reason=str(error))
            sys.stderr.write(f"{error}\n")
            return 2
        log.error("worker failed", part=task.get_name(), exc_info=error)
        return 1

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        """Stops claiming, gives back what has not begun, and finishes the rest within the grace time."""
        context = self._context
        self._pacemaker.drain()
        self._claimer.stopping = True
        context.hands.freed.set()
        log.info("worker drains", holds=len(context.hands))
        ends = time.monotonic() + self._settings.drain_grace_s
        while not claiming.done() and time.monotonic() < ends:
            try:
                await context.control.unblock(self._claim_link)
            except RedisUnreachable:
                break
            await asyncio.wait([claiming], timeout=DRAIN_POLL_S)
        unbegun = await self._ask_unbegun(ends)
        held = [context.hands.get(key) for key in unbegun]
        self._committer.hand_back([each.entry for each in held if each is not None and not each.answered])
        await context.hands.emptied(ends - time.monotonic())
        log.info("worker drained", handed_back=len(unbegun), left=len(context.hands))

    async def _ask_unbegun(self, ends: float) -> list[str]:
        if not self._engine.ready:
            return self._unanswered_keys()
        self._unbegun = asyncio.get_running_loop().create_future()
        self._engine.send({"kind": "drain"})
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                return await self._unbegun
        except TimeoutError:
            return []

    def _unanswered_keys(self) -> list[str]:
        return [key_of(each.entry) for each in self._context.hands.unanswered()]

    async def _leave(self) -> None:
        """Gives what is left to others, and takes the name out of the group."""
        context, link = self._context, self._context.control
        left = [each.entry for each in context.hands.all()]
        try:
            if left:
                await consumer.hand_back(link, context.keys, context.worker, left)
            owed = await consumer.leave(link, context.keys, context.worker)
        except RedisUnreachable as error:
            log.warning("cannot leave the group", reason=error.message)
            return
        if owed:
            log.warning("left with entries owed: another worker takes them", n=owed)

    def _on_ready(self, header: Header) -> None:
        log.info("engine ready", model=header["model"], device=header["device"], dim=header["dim"])
        self._claimer.batch_tokens = int(header["max_batch_tokens"])
        self._patience.restarted()
        self._context.revision = str(header["revision"])
        self._pacemaker.ready(header)
        self._claimer.bring(self._context.hands.unanswered())
        self._context.hands.freed.set()

    def _on_standby(self) -> None:
        self._context.standby = True
        self._pacemaker.stand_by()

    def _on_grant(self) -> None:
        self._context.standby = False
        self._pacemaker.loading()

    def _on_loss(self) -> None:
        """The GPU is another's: the engine ends at once, and others run what it held, for which nobody is blamed."""
        self._context.hands.forgive()
        self._engine.kill()
        self._give_away()

    def _give_away(self) -> None:
        self._committer.hand_back([each.entry for each in self._context.hands.unanswered()])

    def _on_death(self, in_a_row: int) -> None:
        if self._tenancy.died():  # it had to end
            self._context.hands.forgive()
            self._give_away()
        if not self._context.standby:
            self._pacemaker.loading()
        self._context.hands.interrupt()
        self._begun.interrupted()
        if self._context.spans is not None:
            self._context.spans.interrupted()
        if self._unbegun is not None and not self._unbegun.done():
            self._unbegun.set_result(self._unanswered_keys())
        elif in_a_row >= HOPELESS_DEATHS:
            log.warning("the engine does not come up: giving what is held to other workers")
            self._give_away()

    def _on_frame(self, header: Header, payload: bytes) -> None:
        kind = header["kind"]
        if kind in ("want", "has", "done"):
            self._tenancy.heard(kind)
        elif kind == "begun":
            self._context.hands.begin(header["keys"])
            self._begun.changed()
        elif kind == "ran":
            self._learn(header)
            self._results.take(header, payload)
            if header["paused"]:
                self._context.hands.pause(header["paused"])
                self._begun.changed()
        elif kind == "unbegun" and self._unbegun is not None and not self._unbegun.done():
            self._unbegun.set_result(header["keys"])

    def _learn(self, header: Header) -> None:
        """Takes in what a batch says of the model."""
        if not header["size"] or header["more"]:
            return
        self._patience.ran(header["seconds"], header["full_s"])
        if header["max_batch_tokens"] < self._claimer.batch_tokens:
            self._claimer.batch_tokens = int(header["max_batch_tokens"])
            log.warning("out of memory: batches are smaller from now on", max_batch_tokens=self._claimer.batch_tokens)
        metrics.MOST_TOKENS.labels(self._context.worker).set(self._claimer.batch_tokens)

    def _drop(self, keys: list[str]) -> None:
        self._engine.send({"kind": "drop", "keys": keys})
