"""A worker's side of one shard: its connections to the Redis of the shard, and the parts that use them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import structlog
from structlog.contextvars import bound_contextvars

from gpuworker.consumer.claim_turns import ClaimTurns
from gpuworker.consumer.claimer import Claimer
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.entry_intake import EntryIntake
from gpuworker.consumer.heartbeat import HeartbeatSender
from gpuworker.consumer.in_progress_marker import InProgressMarker
from gpuworker.consumer.job_feeder import JobFeeder
from gpuworker.consumer.reclaimer import Reclaimer
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.gpu.devices import Gpu
from gpuworker.ipc.engine_process import EngineProcess
from shared import consumer
from shared.errors import RedisUnreachableError
from shared.process.tasks import run_forever
from shared.queue_connections import QueueConnections

log = structlog.get_logger()

UNBLOCK_INTERVAL_S = 0.01


class ShardConsumer:
    """Claims, renews and commits the entries of one shard for a worker, and sends its heartbeats there.

    Args:
        worker_state: of the worker, to which it adds the shard.
        connections: those of the worker to the shard.
        engine: runs the entries.
        status: of the worker.
        turns: in which the worker claims from its shards.
        gpus: the GPUs that the worker's process sees.

    Attributes:
        state: of the shard.
        committer: answers its entries, or hands them back.
    """

    def __init__(
        self,
        worker_state: WorkerState,
        connections: QueueConnections,
        engine: EngineProcess,
        status: WorkerStatus,
        turns: ClaimTurns,
        gpus: Sequence[Gpu],
    ) -> None:
        self._worker_state = worker_state
        self._connections = connections
        address = connections.settings.redis_address
        self.state = ShardState(worker_state, connections.keys, connections.connection("control"), address)
        self._claim_connection = connections.connection("claim", identified=True)
        reclaim_connection = connections.connection("keep", identified=True)
        self.committer = Committer(self.state, connections.connection("commit"))
        self._intake = EntryIntake(self.state, engine, self.committer)
        self._claimer = Claimer(self.state, self._claim_connection, reclaim_connection, engine, self._intake, turns)
        self._reclaimer = Reclaimer(self.state, reclaim_connection, self._claimer, self._intake, engine.drop)
        self._in_progress = InProgressMarker(self.state, connections.connection("begun"))
        self._job_feeder = JobFeeder(self.state)
        self._heartbeat = HeartbeatSender(self.state, status, gpus, connections)
        self._claiming: asyncio.Task[None] | None = None
        connections.home.watch(self._claimer.recover_soon)

    def start(self) -> list[asyncio.Task[None]]:
        """Starts its tasks, which run until they are cancelled, and returns them."""
        parts = (
            ("claim", self._claimer.run()),
            ("commit", self.committer.run()),
            ("mark in progress", self._in_progress.run()),
            ("reclaim", self._reclaimer.run()),
            ("feed jobs", self._job_feeder.run()),
            ("heartbeat", self._heartbeat.run()),
            ("follow switches", run_forever(self._connections.follow_switches)),
        )
        with self._name_redis():
            tasks = [asyncio.create_task(part, name=name) for name, part in parts]
        self._claiming = tasks[0]
        return tasks

    def _name_redis(self) -> AbstractContextManager[object]:
        """Has log lines of the block, and of its tasks, name the Redis of the shard, if there are others."""
        is_alone = len(self._worker_state.shards) == 1
        return nullcontext() if is_alone else bound_contextvars(redis=self.state.address)

    def reset_in_progress(self) -> None:
        """Has the record of what runs written again: the engine has died."""
        self._in_progress.reset()

    def send_to_engine(self) -> None:
        """Sends all entries that have no answer to a new engine."""
        self._intake.send_to_engine(self._worker_state.in_flight.unanswered(self.state.number))

    async def stop_claiming(self, ends: float) -> None:
        """Ends the claims of a worker that is stopping, until `ends` (monotonic clock); gives up if Redis is away."""
        while self._claiming is not None and not self._claiming.done() and time.monotonic() < ends:
            try:
                await self.state.control.unblock(self._claim_connection)
            except RedisUnreachableError:
                return
            await asyncio.wait([self._claiming], timeout=UNBLOCK_INTERVAL_S)

    async def leave(self, load_error: str) -> None:
        """Hands back the entries that are left, and removes this worker from the consumer group.

        A queue that only it has announced, for a model that never loaded, goes with it: gateways would accept jobs.
        The heartbeat that remains says why the model did not load, if there is a `load_error`.
        """
        with self._name_redis():
            await self._leave(load_error)

    async def _leave(self, load_error: str) -> None:
        worker, keys, connection = self._worker_state.worker, self.state.keys, self.state.control
        left = [each.entry for each in self._worker_state.in_flight.entries(self.state.number)]
        try:
            if left:
                await consumer.hand_back(connection, keys, worker, left)
            owed = await consumer.leave(connection, keys, worker)
            await self._heartbeat.withdraw_unproven()
            if load_error:
                await self._heartbeat.leave_load_error(load_error)
        except RedisUnreachableError as error:
            log.warning("cannot leave the group", reason=error.log_message)
            return
        if owed:
            log.warning("left with pending entries: another worker takes them over", n=owed)

    async def close(self) -> None:
        """Closes its connections."""
        await self._connections.close()
