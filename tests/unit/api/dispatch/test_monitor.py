"""When a gateway considers the queue's data lost, and what it makes of the heartbeats."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from api import metrics
from api.dispatch.monitor import Monitor, MonitorCallbacks
from api.tenants import ANONYMOUS, INTERACTIVE_SHARE, Tenant
from shared.errors import RedisUnreachableError
from shared.keys import INTERACTIVE, Keys
from shared.messages import DOES_NOT_LOAD, DRAINING, FAILING, LOADING, READY, STANDBY, Heartbeat
from shared.producer import QueueStats
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import ActiveTenants

pytestmark = pytest.mark.asyncio


def connections(connection: object) -> QueueConnections:
    """Returns the connections to a queue, all of which are this one."""
    fields = {"keys": Keys("q"), "settings": QueueSettings(), "connection": lambda _purpose: connection}
    return cast("QueueConnections", SimpleNamespace(**fields))


class UnreachableRedis:
    """A connection to a Redis that never answers."""

    num_timeouts = 0

    async def check_home(self) -> None:
        """Does nothing, as without a connection."""

    async def run(self, *_args: object) -> None:
        """Raises RedisUnreachableError."""
        raise RedisUnreachableError("out of reach")


@pytest.mark.parametrize(
    ("epochs", "losses"),
    [
        ([b"1", b"1"], 0),
        ([b"", b"", b"1", b"1"], 0),
        ([b"1", b"2", b"2"], 1),
        ([b"1", b"", b""], 1),
        ([b"1", b"", b"2"], 2),
        ([b"1", b"2", b"", b"3"], 3),
    ],
    ids=["the same", "the first one", "another", "none after one", "another after none", "none, seen late"],
)
async def test_a_change_of_the_epoch_is_a_loss(epochs: list[bytes], losses: int) -> None:
    """After the first epoch each change is a loss, also that from none to another: entries in between may be lost."""
    losses_seen = 0

    async def on_loss() -> None:
        nonlocal losses_seen
        losses_seen += 1

    monitor = Monitor(connections(UnreachableRedis()), 60.0, MonitorCallbacks(on_loss, lambda: None))
    running = asyncio.create_task(monitor.run())
    for epoch in epochs:
        monitor.observe_epoch(epoch)
        for _ in range(10):
            await asyncio.sleep(0)
    running.cancel()
    assert losses_seen == losses


async def test_one_poll_at_a_time_is_for_all_who_want_one() -> None:
    """Each job without a ready worker polls: they wait for one call, which goes on if one of their clients leaves."""
    may_answer, num_calls = asyncio.Event(), 0

    class SlowRedis(UnreachableRedis):
        async def run(self, *_args: object) -> None:
            nonlocal num_calls
            num_calls += 1
            await may_answer.wait()
            raise RedisUnreachableError("out of reach")

    monitor = Monitor(connections(SlowRedis()), 60.0, MonitorCallbacks(lambda: asyncio.sleep(0), lambda: None))
    polls = [asyncio.create_task(monitor.poll()) for _ in range(20)]
    await asyncio.sleep(0.01)
    polls[0].cancel()
    await asyncio.sleep(0.01)
    may_answer.set()
    await asyncio.gather(*polls[1:])
    assert num_calls == 1
    await monitor.poll()
    assert num_calls == 2


async def test_a_move_to_another_master_is_a_loss() -> None:
    """Also with the epoch of the former one, of which the new one has a copy."""
    losses_seen = 0

    async def on_loss() -> None:
        nonlocal losses_seen
        losses_seen += 1

    monitor = Monitor(connections(QueueWithWorkers()), 60.0, MonitorCallbacks(on_loss, lambda: None))
    running = asyncio.create_task(monitor.run())
    for moves in range(3):
        for _ in range(10):
            await asyncio.sleep(0)
        assert losses_seen == moves
        monitor.observe_move()
    running.cancel()


async def test_before_the_first_answer_of_redis_no_worker_is_known() -> None:
    """Otherwise an unused queue would count as a model, and requests that name none would be refused as ambiguous."""

    async def on_loss() -> None:
        """Does nothing."""

    monitor = Monitor(connections(UnreachableRedis()), 60.0, MonitorCallbacks(on_loss, lambda: None))
    assert monitor.worker_unseen_s() is None
    await monitor.poll()
    assert monitor.worker_unseen_s() is None


class QueueWithWorkers:
    """A connection to a Redis whose queue has these workers."""

    num_timeouts = 0

    def __init__(self) -> None:
        self.workers: tuple[Heartbeat, ...] = ()

    async def check_home(self) -> None:
        """Finds the same Redis."""

    async def run(self, *_args: object) -> list[object]:
        """Returns the result of the script queue_stats."""
        beats = [json.dumps(asdict(each)).encode() for each in self.workers]
        return [0, b"e", 0, 0, [0, 0], 0, [b"", b""], 0, beats, 0, 0, b"0", b"0", 0, 0, 0, 0, 0, 0, b""]


async def test_operations_are_known_while_all_workers_report_them() -> None:
    """The operations are those of any live worker, or of the last ones; an older worker makes them unknown.

    A worker that loads a model of the hub does not know them yet, and changes nothing for clients of the others.
    """

    async def on_loss() -> None:
        """Does nothing."""

    queue = QueueWithWorkers()
    monitor = Monitor(connections(queue), 60.0, MonitorCallbacks(on_loss, lambda: None))
    assert monitor.ops == frozenset()
    beat = Heartbeat("w", "h", 1, "cpu", "m", 0, "loading", 0.0, 0, 0, 0)
    text, function = replace(beat, ops=("embed", "tokenize")), replace(beat, ops=("predict",))
    for workers, expected in (
        ((text,), {"embed", "tokenize"}),
        ((text, function), {"embed", "tokenize", "predict"}),
        ((function,), {"predict"}),
        ((), {"predict"}),
        ((function, beat), {"predict"}),
        ((beat,), {"predict"}),
        ((function, replace(beat, state=READY, revision="r")), set()),
        ((), set()),
    ):
        queue.workers = workers
        await monitor.poll()
        assert monitor.ops == expected


async def test_workers_with_different_models_are_a_warning_once_for_each_change() -> None:
    """A request gets the vectors of whichever worker takes it, so the log names the models and what to do."""

    async def on_loss() -> None:
        """Does nothing."""

    queue = QueueWithWorkers()
    monitor = Monitor(connections(queue), 60.0, MonitorCallbacks(on_loss, lambda: None))
    first = Heartbeat("w", "h", 1, "cpu", "a/bge", 384, "ready", 0.0, 0, 0, 0, revision="1")
    second = replace(first, model="b/bge", dim=768, revision="2")
    warned = []
    for workers in ((first,), (first, second), (first, second), (second,), (first, second, replace(second, dim=512))):
        queue.workers = workers
        with capture_logs() as logs:
            await monitor.poll()
        warned.append([(each["queue"], each["models"]) for each in logs if "--queue NAME" in each["event"]])
    models = ["a/bge (384 dimensions)", "b/bge (768 dimensions)"]
    assert warned == [[], [("q", models)], [], [], [("q", sorted([*models, "b/bge (512 dimensions)"]))]]


WORKER = Heartbeat("h1-1", "h1", 1, "cpu", "m", 8, READY, 0.0, 0, 0, 1, ops=("embed",), prompts=("query",))
BROKEN = replace(WORKER, worker="h2-failed", host="h2", dim=0, state=FAILING, failing=DOES_NOT_LOAD, load_error="no")
BROKEN_TOO = replace(BROKEN, worker="h1-failed", host="h1")
NEXT = replace(WORKER, worker="h1-2", dim=0, state=LOADING, started_ms=2, prompts=None)
"""A worker on one host, one broken host and then both; and the next worker on the first."""


async def make_monitor(queue: QueueWithWorkers, grace_s: float, *workers: Heartbeat) -> Monitor:
    """Returns a monitor that has seen these workers."""

    async def on_loss() -> None:
        """Does nothing."""

    monitor = Monitor(connections(queue), grace_s, MonitorCallbacks(on_loss, lambda: None))
    queue.workers = workers
    await monitor.poll()
    return monitor


@pytest.mark.parametrize(
    ("before", "grace_s", "now", "expected"),
    [
        ((WORKER, BROKEN), 60.0, (BROKEN,), False),
        ((WORKER, BROKEN), 60.0, (BROKEN, NEXT), False),
        ((WORKER, BROKEN), 60.0, (BROKEN, replace(WORKER, state=DRAINING)), False),
        ((BROKEN,), 60.0, (BROKEN, replace(WORKER, state=DRAINING)), False),
        ((BROKEN,), 60.0, (BROKEN, replace(WORKER, state=STANDBY)), False),
        ((WORKER, BROKEN), 0.0, (BROKEN,), True),
        ((WORKER, BROKEN), 60.0, (BROKEN, BROKEN_TOO), True),
        ((WORKER, BROKEN), 60.0, (BROKEN, BROKEN_TOO, NEXT), True),
        ((BROKEN,), 60.0, (BROKEN,), True),
    ],
    ids=["gone", "loading", "draining", "draining, long", "standby", "past the grace", "failed", "again", "never"],
)
async def test_a_broken_host_says_nothing_of_others(
    before: tuple[Heartbeat, ...], grace_s: float, now: tuple[Heartbeat, ...], expected: bool
) -> None:
    """While a worker that was ready on another host is away for a moment, requests wait for it."""
    queue = QueueWithWorkers()
    monitor = await make_monitor(queue, grace_s, *before)
    queue.workers = now
    await monitor.poll()
    assert (monitor.does_not_load, bool(monitor.cluster().failing)) == (expected, expected)


async def test_a_broken_host_is_no_worker() -> None:
    """It has no model, so it would make the vectors' length and the prompts unknown; and no worker to count."""
    monitor = await make_monitor(QueueWithWorkers(), 60.0, WORKER, BROKEN)
    assert monitor.workers() == (WORKER,)
    assert metrics.WORKERS.labels("q", FAILING)._value.get() == 0
    assert monitor.missing() == []
    monitor = await make_monitor(QueueWithWorkers(), 60.0, BROKEN)
    assert monitor.workers() == ()
    assert monitor.models == {"m"}
    assert monitor.cluster().worker_unseen_s == 0.0
    assert monitor.missing() == ["worker"]


async def test_the_shards_of_a_queue_have_the_limits_of_tenants_together() -> None:
    """A named tenant has its share of all workers on its shard; the anonymous one a part of it on each shard."""
    monitors = [Monitor(connections(UnreachableRedis()), 60.0, MonitorCallbacks(no_loss, lambda: None)) for _ in "ab"]
    for monitor, tenants in zip(monitors, (ActiveTenants(4.0, 3.0), ActiveTenants(1.0, 0.0)), strict=True):
        monitor.join(monitors)
        monitor.tokens_per_s[INTERACTIVE] = 1_000.0
        monitor.stats = QueueStats(0, b"1", 0, 0, (0, 0), 0, (None, None), 0, (), tenants=tenants)
    for monitor in monitors:
        monitor._observe_shards()
        named, anonymous = (monitor.limits(each, 1.0) for each in (Tenant("a"), ANONYMOUS))
        assert named is not None
        assert anonymous is not None
        assert named.share_tokens_per_s == INTERACTIVE_SHARE * 2_000 / 4
        assert anonymous.share_tokens_per_s == named.share_tokens_per_s / 2
    metrics.remove_queue("q")


async def test_a_worker_of_several_shards_counts_once() -> None:
    """Three ready ones, of which one serves both shards: each shard has the requests of two."""
    monitors = [Monitor(connections(UnreachableRedis()), 60.0, MonitorCallbacks(no_loss, lambda: None)) for _ in "ab"]
    for monitor, names in zip(monitors, ("ab", "bcd"), strict=True):
        monitor.join(monitors)
        monitor.stats = QueueStats(0, b"1", 0, 0, (0, 0), 0, (None, None), 0, ())
        monitor._workers = tuple(
            Heartbeat(name, "host", 1, "cpu", "null", 8, LOADING if name == "d" else READY, 0.0, 0, 0, 0)
            for name in names
        )
    for monitor in monitors:
        monitor._observe_shards()
    assert [each.workers_per_shard for each in monitors] == [2, 2]
    assert metrics.WORKERS.labels("q", READY)._value.get() == 3
    metrics.remove_queue("q")


async def no_loss() -> None:
    """Does nothing."""
