"""A lock that the tenants or addresses which wait for it get in turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.tenants import ShareHolder


class FairLock:
    """A lock for which any number of tasks wait, each for a holder of a share.

    The holders get it in turns, and the tasks of one in their order: however many tasks wait for others, a holder waits
    for one turn of each of these.
    """

    def __init__(self) -> None:
        self._is_locked = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Those that wait, by the name of the holder; the holder whose turn is next comes first."""

    @asynccontextmanager
    async def turn(self, holder: ShareHolder) -> AsyncIterator[None]:
        """Holds the lock during a block."""
        await self._acquire(holder)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, holder: ShareHolder) -> None:
        if not self._is_locked:
            self._is_locked = True
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder.name, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it had the lock already
                self._release()
            raise

    def _release(self) -> None:
        """Passes the lock on. A task that was cancelled takes no turn."""
        while self._waiting:
            name = next(iter(self._waiting))
            futures = self._waiting.pop(name)
            while futures:
                future = futures.popleft()
                if not future.done():
                    if futures:
                        self._waiting[name] = futures  # behind the others
                    future.set_result(None)
                    return
        self._is_locked = False
