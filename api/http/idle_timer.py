"""Closes connections whose clients have sent no request for a time: one timer for all of them."""

from __future__ import annotations

import asyncio


class IdleTimer:
    """The idle connections of a gateway, those first that are idle for the longest.

    uvicorn has a timer for each, which it sets and cancels with every request.

    Args:
        timeout_s: how long a connection may be idle.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadlines: dict[asyncio.Transport, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """A connection is idle from now on."""
        self.stop(transport)
        self._deadlines[transport] = loop.time() + self._timeout_s
        if self._timer is None:
            self._set_timer(loop)

    def stop(self, transport: asyncio.Transport) -> None:
        """A connection is idle no more, or it is closed."""
        self._deadlines.pop(transport, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        first_s = next(iter(self._deadlines.values()), None)
        self._timer = None if first_s is None else loop.call_at(first_s, self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        while self._deadlines:
            transport, deadline_s = next(iter(self._deadlines.items()))
            if deadline_s > now_s:
                break
            del self._deadlines[transport]
            transport.close()
        self._set_timer(loop)
