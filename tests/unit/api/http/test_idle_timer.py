"""One timer closes the connections that are idle for long, and no other."""

from __future__ import annotations

import asyncio

from api.http.idle_timer import IdleTimer
from tests.unit.api.http.connection_under_test import RecordingTransport
from tests.waiting import wait_until

TIMEOUT_S = 0.4


class TimedTransport(RecordingTransport):
    """A transport that also records when it was closed (event loop's clock)."""

    closed_at = 0.0

    def close(self) -> None:
        """Records the close."""
        super().close()
        self.closed_at = asyncio.get_running_loop().time()


async def test_each_connection_is_closed_after_its_own_time() -> None:
    """One that was busy meanwhile has its whole time again; one that is closed or busy is not closed."""
    loop, timer = asyncio.get_running_loop(), IdleTimer(TIMEOUT_S)
    first, second, busy, again = (TimedTransport() for _ in range(4))
    began_s = loop.time()
    for each in (first, again, busy):
        timer.start(each, loop)
    timer.stop(busy)
    await asyncio.sleep(TIMEOUT_S / 2)
    later_s = loop.time()
    timer.start(second, loop)
    timer.start(again, loop)
    await wait_until(lambda: first.calls == ["closed"], "the first is closed")
    await wait_until(lambda: second.calls == again.calls == ["closed"], "both are closed")
    assert first.closed_at - began_s >= TIMEOUT_S
    assert min(second.closed_at, again.closed_at) - later_s >= TIMEOUT_S
    await asyncio.sleep(2 * TIMEOUT_S)
    assert (busy.calls, first.calls) == ([], ["closed"])
    timer.start(busy, loop)
    await wait_until(lambda: busy.calls == ["closed"], "the timer begins again")
