"""What a worker reports of itself: that it is up, and that it is alive."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpuworker.consumer import worker_status
from gpuworker.consumer.heartbeat import HeartbeatSender
from gpuworker.consumer.inflight import InFlightEntries
from gpuworker.consumer.worker_state import CLAIM, COMMIT, HEARTBEAT, ShardState, WorkerState
from gpuworker.consumer.worker_status import WorkerStatus
from gpuworker.ipc.messages import Ready
from gpuworker.policy.token_rate import BatchLoad
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.consumer import MAX_HEARTBEATS
from shared.errors import RedisUnreachableError
from shared.heartbeats import MIXED_MODELS
from shared.keys import Keys
from shared.messages import Entry, Heartbeat, Ref
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from shared.redis_errors import NotPermittedError
from tests.waiting import wait_until

MODEL = "null"
TICK_S, STUCK_S = 0.01, 0.2
"""Shorter than in production."""


class HangingConnection:
    """A connection to a Redis that accepts a command and never answers, whatever the timeout."""

    num_timeouts = 0

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def check_home(self) -> None:
        """Has nothing to read."""

    async def run(self, *_args: object) -> None:
        """Never answers."""
        self.called.set()
        await asyncio.Event().wait()


class ScriptedConnection:
    """A connection to a Redis with the heartbeats of other workers, which does not answer the first read of them.

    Attributes:
        num_read: the number of heartbeats that each call has read.
        num_calls: the number of reads of the names of all workers.
        num_timeouts: as of a RedisConnection.
    """

    num_timeouts = 0

    def __init__(self, *beats: Heartbeat) -> None:
        self._data = {Keys("q").worker(each.worker): json.dumps(asdict(each)).encode() for each in beats}
        self.num_read: list[int] = []
        self.num_calls = 0

    async def check_home(self) -> None:
        """Has nothing to read."""

    async def run(self, *_args: object) -> list[int]:
        """Returns Redis' clock and the number of live workers."""
        return [1, 1]

    async def call(self, *command: object) -> list[bytes] | bytes:
        """Returns the names of all workers, or an empty INFO. Raises RedisUnreachableError: the first time."""
        if command[0] == "INFO":
            return b""
        self.num_calls += 1
        if self.num_calls == 1:
            raise RedisUnreachableError("Redis did not answer.")
        return [name.rpartition(":")[2].encode() for name in self._data]

    async def call_all(self, commands: Sequence[tuple[str, str]]) -> list[bytes]:
        """Returns heartbeats."""
        self.num_read.append(len(commands))
        return [self._data[name] for _, name in commands]


class RefusingConnection(ScriptedConnection):
    """A connection to a Redis that takes heartbeats but does not let a worker remove those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.num_beats = self.num_removals = 0

    async def run(self, *args: object) -> list[int]:
        """Returns what the scripts return. Raises Redis' error for `leave`."""
        if args[0] is scripts.LEAVE:
            self.num_removals += 1
            raise NotPermittedError("NOPERM")
        self.num_beats += args[0] is scripts.HEARTBEAT
        return [1, 1]


def create_status(worker: str, num_shards: int = 1) -> WorkerStatus:
    """Returns the status of a worker that has just started."""
    settings = WorkerSettings(model=MODEL, redis_timeout_s=60)
    return WorkerStatus(WorkerState(settings, worker, InFlightEntries(num_shards)))


def create_senders(status: WorkerStatus) -> list[HeartbeatSender]:
    """Returns the senders of its heartbeats to two shards."""
    state = status._worker_state
    queues = [QueueConnections(state.settings, "q", "test") for _ in range(2)]
    return [HeartbeatSender(ShardState(state, each.keys, cast("Any", None)), status, [], each) for each in queues]


def create_sender(worker: str, connection: object = None) -> tuple[HeartbeatSender, WorkerStatus]:
    """Returns the heartbeat sender of such a worker, and its status."""
    status = create_status(worker)
    state = status._worker_state
    queue = QueueConnections(state.settings, "q", "test")
    return HeartbeatSender(ShardState(state, Keys("q"), cast("Any", connection)), status, [], queue), status


def reported_up(worker: str) -> float | None:
    """Returns the worker's `up` metric; None if there is none."""
    return REGISTRY.get_sample_value("redbatch_worker_up", {"worker": worker, "model": MODEL})


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a blocked event loop count as dead sooner."""
    monkeypatch.setattr(worker_status, "TICK_S", TICK_S)
    monkeypatch.setattr(worker_status, "STUCK_S", STUCK_S)


def test_a_worker_is_not_up_from_its_first_moment_on() -> None:
    """If its engine never becomes ready, or restarts again and again, it reports 0 for alerts, not nothing."""
    assert reported_up("new") is None
    status = create_status("new")
    assert reported_up("new") == 0
    status.set_ready(Ready())
    assert reported_up("new") == 1
    status.set_loading()
    assert reported_up("new") == 0
    status.set_ready(Ready())
    status.set_standby()
    assert reported_up("new") == 0
    status.set_ready(Ready())
    create_status("new")  # replaces one that failed
    assert reported_up("new") == 0


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_intervals")
async def test_redis_that_hangs_leaves_a_worker_alive() -> None:
    """However long it hangs: an outage of Redis must restart no GPU worker."""
    connection = HangingConnection()
    sender, status = create_sender("cut off", connection)
    tasks = [asyncio.create_task(sender.run()), asyncio.create_task(status.tick())]
    await connection.called.wait()
    ends = time.monotonic() + 3 * STUCK_S
    while time.monotonic() < ends:
        await wait_until(status.is_alive, "it is alive, also after a stall of the machine")
        await asyncio.sleep(TICK_S)
    assert status.missing_parts() == ["redis", "engine"]
    await cancel_and_wait(tasks)


@pytest.mark.asyncio
async def test_the_models_of_other_workers_are_compared_once_redis_answers() -> None:
    """An outage at the moment of the check delays it. However many workers there are, no call reads all at once."""
    beat = Heartbeat("w", "h", 1, "cpu", MODEL, 384, "ready", 0.0, 0, 0, 0, revision="1")
    others = [replace(beat, worker=f"w-{number}") for number in range(2 * MAX_HEARTBEATS)]
    connection = ScriptedConnection(*others, replace(beat, worker="w-last", model="another", revision="2"))
    sender, status = create_sender("w-0", connection)
    with capture_logs() as logs:
        status.set_ready(Ready(model=MODEL, revision="1"))
        task = asyncio.create_task(sender.run())
        await wait_until(lambda: connection.num_calls == 1, "the first read has failed")
        status.set_ready(Ready(model=MODEL, revision="1"))  # sends a heartbeat at once
        await wait_until(lambda: len(connection.num_read) == 3, "the heartbeats are read")
        await cancel_and_wait([task])
    assert [each["models"] for each in logs if each["event"] == MIXED_MODELS] == [
        ["another (384 dimensions)", f"{MODEL} (384 dimensions)"]
    ]
    assert connection.num_read == [MAX_HEARTBEATS, MAX_HEARTBEATS, 1]


@pytest.mark.asyncio
async def test_a_load_error_that_cannot_be_removed_stops_no_heartbeat() -> None:
    """It expires by itself, so that a warning is enough."""
    connection = RefusingConnection()
    sender, status = create_sender("w", connection)
    with capture_logs() as logs:
        status.set_ready(Ready())
        task = asyncio.create_task(sender.run())
        for number in (1, 2, 3):
            await wait_until(lambda number=number: task.done() or connection.num_beats >= number, "a heartbeat")  # type: ignore[misc]
            assert not task.done()
            status.set_ready(Ready())  # sends a heartbeat at once
        await cancel_and_wait([task])
    assert connection.num_removals == 1
    assert [each["reason"] for each in logs if "no longer valid" in each["event"]] == ["NOPERM"]


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_intervals")
async def test_an_event_loop_that_is_blocked_is_not_alive() -> None:
    """As the thread of the admin port sees it; it is alive again once the loop runs."""
    status = create_status("stuck")
    ticking = asyncio.create_task(status.tick())
    await asyncio.sleep(TICK_S)
    alive: list[bool] = []
    probe = threading.Timer(2 * STUCK_S, lambda: alive.append(status.is_alive()))
    probe.start()
    probe.join()  # which blocks the loop
    assert alive == [False]
    await wait_until(status.is_alive, "it is alive again")
    await cancel_and_wait([ticking])


def test_the_shards_whose_redis_answers_share_the_rate() -> None:
    """What a shard has to itself is the rate of the whole engine; with one that comes back, it is half again."""
    status = create_status("w", 2)
    senders, state = create_senders(status), status._worker_state
    shards = state.shards
    state.token_rate.record(BatchLoad(1_000, time.monotonic(), 1.0, 0.0, is_saturated=True))
    for answering, rates in (([], [1_000, 1_000]), ([0, 1], [500, 500]), ([1], [500, 1_000])):
        for number, shard in enumerate(shards):
            shard.record_call(HEARTBEAT, is_answered=number in answering)
        beats = [sender._heartbeat() for sender in senders]
        assert [beat.tokens_per_s for beat in beats] == rates
        assert [beat.bulk_tokens_per_s for beat in beats] == rates
    shards[1].record_call(CLAIM, is_answered=False)
    assert [shard.rate_share for shard in shards] == [1, 1]


def test_a_worker_is_ready_while_any_redis_answers() -> None:
    """The one that is away costs the shards of others nothing."""
    status = create_status("w", 2)
    create_senders(status)
    shards = status._worker_state.shards
    status.set_ready(Ready())
    assert status.missing_parts() == ["redis"]
    shards[1].record_call(HEARTBEAT, is_answered=True)
    assert status.missing_parts() == []
    shards[1].record_call(COMMIT, is_answered=False)
    assert status.missing_parts() == ["redis"]


def test_each_shard_hears_of_its_own_entries() -> None:
    """Sums over workers and shards hold."""
    status = create_status("w", 2)
    senders, in_flight = create_senders(status), status._worker_state.in_flight
    held = in_flight.add(Entry(Ref(0, b"1-0", 1, 1), 1, "r", 0, 0, "", "", b""), 1, ("x",))
    in_flight.runs.begin([held.slot])
    beats = [sender._heartbeat() for sender in senders]
    assert [(beat.holds, beat.begun) for beat in beats] == [(0, 0), (1, 1)]


def test_the_rate_of_other_shards_is_sent_at_once_when_one_comes_or_goes() -> None:
    """Gateways would refuse requests that the engine has time for, or accept too many."""
    status = create_status("w", 3)
    state = status._worker_state
    first, *others = (ShardState(state, Keys("q"), cast("Any", None)) for _ in range(3))
    due = []
    for call, is_answered in ((HEARTBEAT, True), (HEARTBEAT, True), (CLAIM, False), (COMMIT, False), (CLAIM, True)):
        for shard in state.shards:
            shard.heartbeat_due.clear()
        first.record_call(call, is_answered=is_answered)
        assert not first.heartbeat_due.is_set()
        due.append([shard.heartbeat_due.is_set() for shard in others])
    assert due == [[True, True], [False, False], [True, True], [False, False], [False, False]]
