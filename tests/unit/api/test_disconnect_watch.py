"""The watch over a client that may leave."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.types import Message

from api.routes import DisconnectWatch


@pytest.fixture
def no_collections() -> Iterator[None]:
    """No garbage collection comes to help."""
    gc.disable()
    yield
    gc.enable()


async def _watched(*, until_it_listens: bool) -> weakref.ref[DisconnectWatch]:
    """Watches for a while, and stops; returns what is left of the watch."""
    listens = asyncio.Event()

    async def receive() -> Message:
        listens.set()
        await asyncio.Event().wait()
        raise AssertionError

    watch = DisconnectWatch(Request({"type": "http"}, receive))
    if until_it_listens:
        await listens.wait()
    watch.stop()
    return weakref.ref(watch)


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("until_it_listens", [True, False], ids=["after it began to listen", "before"])
def test_a_watch_that_was_stopped_leaves_nothing_behind(*, until_it_listens: bool) -> None:
    """It is freed at once, not by the next collection: thousands of them a second would fill the memory until then."""
    left = asyncio.run(_watched(until_it_listens=until_it_listens))
    assert left() is None


def test_a_client_that_leaves_cancels_the_request() -> None:
    """The task that waits for the answer is cancelled, and can tell why."""

    async def gone() -> bool:
        async def receive() -> Message:
            return {"type": "http.disconnect"}

        watch = DisconnectWatch(Request({"type": "http"}, receive))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        return watch.gone

    assert asyncio.run(gone())
