"""The Redis that `redbatch up` starts for itself, and starts again on the same port when it dies."""

from __future__ import annotations

import asyncio

from redbatch.up.local_redis import LocalRedis, LocalRedisError
from redbatch.up.restarts import Restart, after_death
from redbatch.up.supervisor import LineReader, Watch

NAME = "redis"
LOOK_EVERY_S = 0.1


class OwnRedis:
    """A supervised LocalRedis inside an event loop."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lines = LineReader(self._take_line)
        self._server = LocalRedis(output=self._lines.descriptor)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> str:
        """Starts the server and its supervision; returns its URL. Raises LocalRedisError."""
        self._lines.start()
        # Blocks for some milliseconds, and must be this thread: the server dies with the thread that started it.
        self._server.start()
        self._task = asyncio.get_running_loop().create_task(self._keep_running())
        return self._server.url

    async def stop(self) -> None:
        """Ends the server and removes its directory."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._server.stop()
        await self._lines.finish()

    def _take_line(self, text: str) -> None:
        # A warning about forks to save the data, printed at each start; without persistence there are none.
        if "overcommit" not in text:
            self._watch.line(NAME, text)

    async def _keep_running(self) -> None:
        clock = asyncio.get_running_loop().time
        started, quick_deaths = clock(), 0
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._server.running():
                continue
            decision = after_death(1, clock() - started, quick_deaths, ever_ready=True)
            if isinstance(decision, Restart):
                quick_deaths = decision.quick_deaths
                self._watch.note(NAME, "died and its data with it; starting it again on the same port")
                await asyncio.sleep(decision.delay_s)
            started = clock()
            try:
                self._server.start()
            except LocalRedisError as error:
                self._watch.give_up(NAME, str(error))
                return
