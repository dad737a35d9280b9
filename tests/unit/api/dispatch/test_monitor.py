"""When a gateway takes the queue's data for lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from api.dispatch.monitor import Monitor, Seen
from shared.errors import RedisUnreachable
from shared.keys import Keys

pytestmark = pytest.mark.asyncio


class Away:
    """A link to a Redis that never answers."""

    async def run(self, *_args: object) -> None:
        """Does not answer."""
        raise RedisUnreachable("away")


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
    ids=["the same", "the first one", "another", "none any more", "another after none", "none, seen late"],
)
async def test_a_change_of_the_epoch_is_a_loss(epochs: list[bytes], losses: int) -> None:
    """From the first one on each change counts, also that from none to another: what came between may be lost."""
    seen = 0

    async def on_loss() -> None:
        nonlocal seen
        seen += 1

    monitor = Monitor(cast("Any", Away()), Keys("q"), 60.0, Seen(on_loss, lambda: None))
    running = asyncio.create_task(monitor.run())
    for epoch in epochs:
        monitor.saw_epoch(epoch)
        for _ in range(10):
            await asyncio.sleep(0)
    running.cancel()
    assert seen == losses
