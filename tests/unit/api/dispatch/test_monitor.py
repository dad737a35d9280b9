"""When a gateway considers the queue's data lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from api.dispatch.monitor import Monitor, MonitorCallbacks
from shared.errors import RedisUnreachableError
from shared.keys import Keys

pytestmark = pytest.mark.asyncio


class UnreachableRedis:
    """A connection to a Redis that never answers."""

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

    monitor = Monitor(cast("Any", UnreachableRedis()), Keys("q"), 60.0, MonitorCallbacks(on_loss, lambda: None))
    running = asyncio.create_task(monitor.run())
    for epoch in epochs:
        monitor.observe_epoch(epoch)
        for _ in range(10):
            await asyncio.sleep(0)
    running.cancel()
    assert losses_seen == losses


async def test_before_the_first_answer_of_redis_no_worker_is_known() -> None:
    """Otherwise an unused queue would count as a model, and requests that name none would be refused as ambiguous."""

    async def on_loss() -> None:
        """Does nothing."""

    monitor = Monitor(cast("Any", UnreachableRedis()), Keys("q"), 60.0, MonitorCallbacks(on_loss, lambda: None))
    assert monitor.worker_unseen_s() is None
    await monitor.poll()
    assert monitor.worker_unseen_s() is None
